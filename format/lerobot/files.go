package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/lru"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// CacheStats says what the table cache holds and did.
func (d *Dataset) CacheStats() lru.Stats { return d.tab.cache.Stats() }

// LimitMemory lowers the budget of the tables and the video indexes together; it never raises it.
func (d *Dataset) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	d.tab.cache.Limit(bytes - bytes/4)
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
	out.From, out.To = timestampAt(c.cols.from, episode), timestampAt(c.cols.to, episode)
	return out, nil
}

func timestampAt(s []float64, i int) float64 {
	if s == nil {
		return math.NaN()
	}
	return s[i]
}

// VideoStart is the time in its mp4 at which the metadata says that an episode's frames begin, in ns; ok is false where it says
// nothing. Frames are not found by it: it is for who wants the reference's check of times.
func (d *Dataset) VideoStart(ctx context.Context, episode int, key string) (ns int64, ok bool, err error) {
	v, err := d.EpisodeVideo(ctx, episode, key)
	if err != nil || math.IsNaN(v.From) || math.Abs(v.From) > 4e9 {
		return 0, false, err
	}
	return int64(math.RoundToEven(v.From * 1e9)), true, nil
}
