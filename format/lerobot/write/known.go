package write

import (
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
)

// KnownFrames is a source that has statistics of the frames of a whole episode, counted before:
// what is copied need not be decoded again. nil where it has none.
type KnownFrames interface {
	KnownFrames(ctx context.Context, key string, episode int) (*robocache.FeatureStats, error)
}

// known is what the statistics of a camera's episodes add up to that were not counted here.
type known struct {
	moments  *stats.Moments
	shape    []int
	episodes int
	// frames of the whole set, for its quantiles: those of episodes do not add up
	sample *stats.Pixels
}

// countKnown adds the statistics that an episode brings.
func (w *Writer) countKnown(key string, fs *robocache.FeatureStats, row *writtenEpisode) {
	row.stats[key] = fs
	k := w.known[key]
	if k == nil {
		k = &known{moments: stats.NewMoments(len(fs.Mean)), shape: fs.Shape}
		w.known[key] = k
	}
	k.moments.Merge(stats.MomentsOf(fs))
	k.episodes++
}

// stats is what is known and what was counted, together.
func (k *known) stats(counted *stats.Pixels) *robocache.FeatureStats {
	if fs := counted.Stats(); fs != nil {
		k.moments.Merge(stats.MomentsOf(fs))
	}
	fs := k.moments.Stats()
	fs.Shape, fs.Quantiles = k.shape, nil
	if s := k.sample.Stats(); s != nil && len(s.Mean) == len(fs.Mean) {
		fs.Quantiles = s.Quantiles
		for _, q := range fs.Quantiles {
			for c := range q {
				q[c] = math.Min(math.Max(q[c], fs.Min[c]), fs.Max[c])
			}
		}
	}
	return fs
}

// sampleFrames is how many frames of a set stand for its quantiles, where not all of its episodes
// were counted here.
const sampleFrames = 128

// sample looks at frames that lie evenly over the episodes, of long groups of frames at the first
// of each: the rest would have to be decoded on the way.
func (c *conversion) sample(ctx context.Context, w *Writer) error {
	for i := range c.features {
		f := &c.features[i]
		k := w.known[f.Key]
		if k == nil {
			continue
		}
		total := 0
		for _, e := range c.opt.Episodes {
			total += c.src.Len(e)
		}
		var refs []robocache.FrameRef
		n := min(sampleFrames, total)
		before, at := 0, 0
		for j := range n {
			row := (2*j + 1) * total / (2 * n)
			for row >= before+c.src.Len(c.opt.Episodes[at]) {
				before += c.src.Len(c.opt.Episodes[at])
				at++
			}
			ref := make([]robocache.FrameRef, 1)
			if err := c.src.Frames(
				ctx,
				f.source,
				[]robocache.Row{{Episode: c.opt.Episodes[at], Index: row - before}},
				ref,
			); err != nil {
				return err
			}
			if !ref[0].Missing && ref[0].Path != "" {
				if err := c.toSync(ctx, &ref[0], row-before); err != nil {
					return err
				}
				refs = append(refs, ref[0])
			}
		}
		source := f.Feature
		source.Key = f.source
		var err error
		if k.sample, err = c.look.Frames(ctx, &source, refs); err != nil {
			return err
		}
		c.find(
			robocache.SeverityInfo,
			"frame-statistics-kept",
			robocache.Where{"stream": f.source},
			fmt.Sprintf(
				"the frames of %d episodes, which are as they were, are not counted again: their statistics are the source's; quantiles of the whole set are those of %d evenly spaced frames",
				k.episodes,
				len(refs),
			),
		)
	}
	return nil
}

// toSync moves a frame back to the sync sample that it needs, at most so many rows.
func (c *conversion) toSync(ctx context.Context, ref *robocache.FrameRef, most int) error {
	file, err := c.lib.Acquire(ctx, ref.Path)
	if err != nil {
		return err
	}
	defer file.Release()
	for k := ref.Ordinal; k >= ref.Ordinal-most && k >= 0; k-- {
		if file.Index.Sample(file.Index.DecodeIndex(k)).Sync {
			ref.Ordinal = k
			return nil
		}
	}
	return nil
}
