package write

import (
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
)

// KnownFrames is a source that already has statistics of the frames of an episode. Copied frames
// then need not be decoded.
type KnownFrames interface {
	// KnownFrames returns the statistics of a camera's frames in an episode, or nil if it has none.
	KnownFrames(ctx context.Context, key string, episode int) (*robocache.FeatureStats, error)
}

// knownStats holds the statistics of a camera's episodes that were not counted by this writer.
type knownStats struct {
	moments  *stats.Moments
	shape    []int
	episodes int
	// Sampled frames of the whole dataset. Its quantiles cannot be computed from those of the
	// episodes.
	sample *stats.Pixels
}

// countKnown adds the source's statistics of an episode.
func (w *Writer) countKnown(key string, fs *robocache.FeatureStats, row *writtenEpisode) {
	row.stats[key] = fs
	k := w.known[key]
	if k == nil {
		k = &knownStats{moments: stats.NewMoments(len(fs.Mean)), shape: fs.Shape}
		w.known[key] = k
	}
	k.moments.Merge(stats.MomentsOf(fs))
	k.episodes++
}

// statsWith returns the statistics of the known and the counted episodes.
func (k *knownStats) statsWith(counted *stats.Pixels) *robocache.FeatureStats {
	if fs := counted.Stats(); fs != nil {
		k.moments.Merge(stats.MomentsOf(fs))
	}
	fs := k.moments.Stats()
	fs.Shape = k.shape
	fs.Quantiles = nil
	if s := k.sample.Stats(); s != nil && len(s.Mean) == len(fs.Mean) {
		fs.Quantiles = s.Quantiles
		// The sample may have values outside the range of the episodes' statistics.
		for _, q := range fs.Quantiles {
			for c := range q {
				q[c] = math.Min(math.Max(q[c], fs.Min[c]), fs.Max[c])
			}
		}
	}
	return fs
}

// sampleFrames is the number of frames that determine the quantiles of a dataset if not all
// episodes were counted.
const sampleFrames = 128

// sampleKnown counts frames that are evenly spaced over the episodes. Each is replaced by the sync
// sample before it, because decoding the frames between is expensive.
func (c *conversion) sampleKnown(ctx context.Context, w *Writer) error {
	for i := range c.features {
		f := &c.features[i]
		known := w.known[f.Key]
		if known == nil {
			continue
		}
		total := 0
		for _, e := range c.options.Episodes {
			total += c.src.Len(e)
		}
		var refs []robocache.FrameRef
		n := min(sampleFrames, total)
		before, position := 0, 0
		for j := range n {
			row := (2*j + 1) * total / (2 * n)
			for row >= before+c.src.Len(c.options.Episodes[position]) {
				before += c.src.Len(c.options.Episodes[position])
				position++
			}
			ref := make([]robocache.FrameRef, 1)
			rows := []robocache.Row{{Episode: c.options.Episodes[position], Index: row - before}}
			if err := c.src.Frames(ctx, f.source, rows, ref); err != nil {
				return err
			}
			if !ref[0].Missing && ref[0].Path != "" {
				if err := c.moveToSync(ctx, &ref[0], row-before); err != nil {
					return err
				}
				refs = append(refs, ref[0])
			}
		}
		source := f.Feature
		source.Key = f.source
		var err error
		if known.sample, err = c.frameCounter.Frames(ctx, &source, refs); err != nil {
			return err
		}
		c.addFinding(
			robocache.SeverityInfo,
			"frame-statistics-kept",
			robocache.Where{"stream": f.source},
			fmt.Sprintf(
				"the frames of %d episodes are unchanged and keep the statistics of the source; "+
					"quantiles of the whole dataset are those of %d evenly spaced frames",
				known.episodes,
				len(refs),
			),
		)
	}
	return nil
}

// moveToSync moves ref back to the sync sample that it depends on, by at most limit rows.
func (c *conversion) moveToSync(ctx context.Context, ref *robocache.FrameRef, limit int) error {
	file, err := c.library.Acquire(ctx, ref.Path)
	if err != nil {
		return err
	}
	defer file.Release()
	for k := ref.Ordinal; k >= ref.Ordinal-limit && k >= 0; k-- {
		if file.Index.Sample(file.Index.DecodeIndex(k)).Sync {
			ref.Ordinal = k
			return nil
		}
	}
	return nil
}
