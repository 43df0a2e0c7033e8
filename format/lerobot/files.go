package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// CacheStats says what the table cache holds and did.
func (d *Dataset) CacheStats() CacheStats { return d.tab.cache.Stats() }

// Stats gives the counts.
func (c *cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Budget = c.bytes, c.budget
	return s
}

// LimitMemory lowers the budget of the tables and the video indexes together; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.tab.cache.limit(bytes - bytes/4)
	d.lib.Limit(bytes / 4)
}

// MemoryBytes is what the dataset holds besides its caches: the episodes table and what follows from it.
func (d *Dataset) MemoryBytes() int64 {
	n := d.eps.MemoryBytes()
	for _, c := range d.cams {
		n += int64(8*len(c.files) + 4*cap(c.byFile.episodes) + 4*cap(c.byFile.first))
	}
	return n + int64(4*cap(d.tab.byFile.episodes)+4*cap(d.tab.byFile.first))
}

// EpisodeVideo says where an episode's frames of one camera lie.
type EpisodeVideo struct {
	Path     string
	From, To float64 // seconds, as declared; NaN where nothing is declared (v2 always)
	First    int     // ordinal of the first frame
	Images   int     // rows from the first on that have a frame
	Exact    bool    // the file has as many frames as its episodes have rows
}

// EpisodeVideo lays the episode's file out and says which frames are its own.
func (d *Dataset) EpisodeVideo(ctx context.Context, episode int, key string) (out EpisodeVideo, err error) {
	defer guard.Malformed("lerobot episode video", &err)
	if err := d.checkEpisode(episode); err != nil {
		return out, err
	}
	if _, err := d.get(key, robocache.KindVideo); err != nil {
		return out, err
	}
	c := d.cams[key]
	f, err := d.layout(ctx, c, episode)
	if err != nil {
		return out, err
	}
	out = EpisodeVideo{Path: f.path, From: math.NaN(), To: math.NaN(), Exact: f.exact}
	out.First, out.Images = f.of(int32(episode))
	if c.cols != nil {
		out.From, out.To = timestampAt(c.cols.from, episode), timestampAt(c.cols.to, episode)
	}
	return out, nil
}

func timestampAt(s []float64, i int) float64 {
	if s == nil {
		return math.NaN()
	}
	return s[i]
}
