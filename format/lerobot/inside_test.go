package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache/internal/lru"
)

// cacheStats says what the table cache holds and did.
func (d *Dataset) cacheStats() lru.Stats { return d.tab.cache.Stats() }

// memoryBytes is what the dataset holds besides its caches: the episodes table and what follows from it.
func (d *Dataset) memoryBytes() int64 {
	e := d.eps
	n := 8*cap(e.index) + 4*cap(e.length) + 8*cap(e.from) + 4*cap(e.file) + 8*cap(e.start) + 16*cap(e.files)
	for _, c := range e.cams {
		n += 4*cap(c.file) + 16*cap(c.files) + 8*cap(c.from) + 8*cap(c.to)
	}
	for _, c := range d.cams {
		n += 8*len(c.files) + 4*cap(c.byFile.episodes) + 4*cap(c.byFile.first)
	}
	return int64(n + 4*cap(d.tab.byFile.episodes) + 4*cap(d.tab.byFile.first))
}

// episodeVideo says where an episode's frames of one camera lie.
type episodeVideo struct {
	Path     string
	From, To float64 // seconds, as declared; NaN where nothing is declared (v2 always)
	First    int     // frame number of the first frame
	Images   int     // rows from the first on that have a frame
	Exact    bool    // the file has as many frames as its episodes have rows
}

func (d *Dataset) episodeVideo(ctx context.Context, episode int, key string) (out episodeVideo, err error) {
	c := d.cams[key]
	f, err := d.layout(ctx, c, episode)
	if err != nil {
		return out, err
	}
	out = episodeVideo{Path: f.path, Exact: f.exact, From: timestampAt(c.cols.from, episode), To: timestampAt(c.cols.to, episode)}
	out.First, out.Images = f.of(int32(episode))
	if d.raw.major == 2 {
		out.From, out.To = math.NaN(), math.NaN()
	}
	return out, nil
}
