package quality

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

const (
	scaleEpisodes = 256 // episodes of the sample
	scaleRows     = 256 // rows of an episode in the sample
	// sketchBytes bounds the memory of all sketches.
	sketchBytes     = 256 << 20
	maxSketchPoints = 32
	minSketchPoints = 4
	maxSketchWidth  = 16 // channels of a sketch
)

// Scale holds the ranges of the channels of a dataset. It is computed from at most 256 episodes,
// evenly spaced over the whole dataset, and at most 256 rows of each, so that it is the same for
// any choice of episodes and for all shards.
type Scale struct {
	Streams map[string][]ChannelScale `json:"streams"`
	// SketchPoints is the number of points of a sketch.
	SketchPoints int `json:"sketch_points"`
}

// ChannelScale is the range of one channel.
type ChannelScale struct {
	Low  float64 `json:"low"`  // 1st percentile
	High float64 `json:"high"` // 99th percentile
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	// StartsHigh is the share of episodes that begin in the upper half of the range.
	StartsHigh float64 `json:"starts_high"`
}

// width returns the range by which values are divided; 0 for a channel that never changes. A
// channel that moves in less than 2 % of the rows is divided by the whole range.
func (c *ChannelScale) width() float64 {
	if w := c.High - c.Low; w > 1e-3*(c.Max-c.Min) {
		return w
	}
	return c.Max - c.Min
}

// ScaleOf computes the scale of a dataset. Episodes that cannot be read are ignored: measuring them
// reports the error.
func ScaleOf(ctx context.Context, ds robocache.Dataset) (*Scale, error) {
	roles := rolesOf(ds.Info())
	s := &Scale{Streams: map[string][]ChannelScale{}}
	var chosen []int
	for k, n := 0, ds.Info().Episodes; k < min(n, scaleEpisodes); k++ {
		chosen = append(chosen, k*n/min(n, scaleEpisodes))
	}
	for _, f := range roles.features() {
		columns := make([]channelSample, f.Elements())
		for _, e := range chosen {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			err := sampleEpisode(ctx, ds, f, e, columns)
			if robocache.IsFatal(err) || errors.Is(err, robocache.ErrTemporary) {
				return nil, err
			}
		}
		scales := make([]ChannelScale, len(columns))
		for c := range columns {
			scales[c] = columns[c].scale()
		}
		s.Streams[f.Key] = scales
	}
	s.SketchPoints = sketchPoints(ds.Info().Episodes, roles)
	return s, nil
}

// channelSample holds sampled values of one channel.
type channelSample struct{ values, firsts []float64 }

// sampleEpisode appends sampled rows of an episode to the columns.
func sampleEpisode(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, e int, columns []channelSample,
) error {
	if robocache.Lacks(ds, e, f.Key) {
		return nil
	}
	n, err := robocache.RowsIn(ctx, ds, e, f)
	if err != nil || n == 0 {
		return err
	}
	rows := make([]robocache.Row, min(n, scaleRows))
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i * n / len(rows)}
	}
	raw := make([]byte, len(rows)*f.RowBytes())
	if err := ds.Gather(ctx, f.Key, rows, raw); err != nil {
		return err
	}
	for i, v := range robocache.Float64s(nil, f.DType, raw) {
		c := &columns[i%len(columns)]
		if v-v != 0 {
			continue
		}
		if i < len(columns) {
			c.firsts = append(c.firsts, v)
		}
		c.values = append(c.values, v)
	}
	return nil
}

// scale returns the range of the sampled values.
func (c *channelSample) scale() ChannelScale {
	if len(c.values) == 0 {
		return ChannelScale{}
	}
	slices.Sort(c.values)
	s := ChannelScale{
		Low: sortedQuantile(c.values, 0.01), High: sortedQuantile(c.values, 0.99),
		Min: c.values[0], Max: c.values[len(c.values)-1],
	}
	for _, v := range c.firsts {
		if v > (s.Min+s.Max)/2 {
			s.StartsHigh += 1 / float64(len(c.firsts))
		}
	}
	return s
}

// sketchPoints returns the largest number of points with which all sketches fit into sketchBytes.
func sketchPoints(episodes int, roles *streamRoles) int {
	points := maxSketchPoints
	for points > minSketchPoints && 4*points*roles.sketchChannels()*episodes > sketchBytes {
		points /= 2
	}
	return points
}

// sketchChannels returns the number of channels of a sketch.
func (r *streamRoles) sketchChannels() int {
	return min(
		maxSketchWidth,
		countChannels(r.state),
	) + min(
		maxSketchWidth,
		countChannels(r.action),
	)
}

func countChannels(parts []part) (n int) {
	for _, p := range parts {
		n += len(p.channels)
	}
	return n
}

// sortedQuantile returns the quantile q of ascending values, interpolated linearly, as
// numpy.quantile does. It returns NaN if there are none.
func sortedQuantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	at := q * float64(len(v)-1)
	k := min(int(at), len(v)-1)
	next := v[min(k+1, len(v)-1)]
	return v[k] + (at-float64(k))*(next-v[k])
}
