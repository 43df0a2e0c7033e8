package view

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
)

const (
	coverageBins     = 48
	coverageRows     = 40_000
	coverageEpisodes = 2000
	coverageRemote   = 100 // episodes of a remote dataset
	coverageChannels = 64  // channels from which components are computed
)

// serveCoverage answers how many rows of a stream lie in each cell of a plane. The axes x and y are
// channels; -1 means the first or the second principal component.
func (s *Server) serveCoverage(q *request) error {
	if err := q.readStream(); err != nil {
		return err
	}
	f := q.feature
	if !inspect.Curves(f) || f.Elements() == 0 {
		return robocache.Unsupported("view", nil, "the stream %q has no channels of numbers", f.Key)
	}
	axes := [2]int64{}
	for i, name := range []string{"x", "y"} {
		var err error
		if axes[i], err = q.queryNumber(name, -1, -1, int64(f.Elements()-1)); err != nil {
			return err
		}
	}
	points, episodes, err := q.base.sampleRows(q.Context(), f)
	if err != nil {
		return err
	}
	out := struct {
		Points    int        `json:"points"`
		Bins      int        `json:"bins"`
		Labels    [2]string  `json:"labels"`
		Low       [2]float64 `json:"low"`
		High      [2]float64 `json:"high"`
		Rows      int        `json:"rows"`
		Episodes  int        `json:"episodes"`
		Explained float64    `json:"explained,omitempty"` // share of the variance
	}{Points: coverageBins * coverageBins, Bins: coverageBins, Rows: len(points), Episodes: episodes}
	if len(points) == 0 {
		return robocache.NotFound("view", nil, "the stream %q has no rows", f.Key)
	}
	components, explained := principalComponents(points)
	names := inspect.ChannelNames(f)
	var values [2][]float64
	for k, channel := range axes {
		if channel >= 0 {
			out.Labels[k] = names[channel]
			values[k] = make([]float64, len(points))
			for i, p := range points {
				values[k][i] = p[channel]
			}
		} else {
			out.Labels[k] = [2]string{"first component", "second component"}[k]
			out.Explained += explained[k]
			values[k] = components[k]
		}
		out.Low[k], out.High[k] = finiteRange(values[k])
	}
	return q.writeBinary(&out, countCells(values, out.Low, out.High))
}

// sampleRows reads rows of a stream, evenly spaced in each of evenly spaced episodes. Episodes that
// cannot be read are left out: the doctor reports them.
func (x *viewedSet) sampleRows(
	ctx context.Context,
	f *robocache.Feature,
) (points [][]float64, episodes int, err error) {
	limit := coverageEpisodes
	if x.isRemote() {
		limit = coverageRemote
	}
	n := min(x.info.Episodes, limit)
	for k := range n {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		e := k * x.info.Episodes / n
		read, err := x.episodeRows(ctx, f, e, max(1, coverageRows/n))
		if robocache.IsFatal(err) {
			return nil, 0, err
		}
		if err == nil && len(read) > 0 {
			points = append(points, read...)
			episodes++
		}
	}
	return points, episodes, nil
}

// episodeRows reads at most limit evenly spaced rows of an episode.
func (x *viewedSet) episodeRows(
	ctx context.Context,
	f *robocache.Feature,
	e, limit int,
) ([][]float64, error) {
	n, err := robocache.RowsIn(ctx, x.ds, e, f)
	if err != nil {
		return nil, err
	}
	count := min(n, limit)
	rows := make([]robocache.Row, count)
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i * n / count}
	}
	raw := make([]byte, count*f.RowBytes())
	if err := x.ds.Gather(ctx, f.Key, rows, raw); err != nil {
		return nil, err
	}
	values := robocache.Float64s(nil, f.DType, raw)
	out := make([][]float64, count)
	for i := range out {
		out[i] = values[i*f.Elements() : (i+1)*f.Elements()]
	}
	return out, nil
}

// principalComponents returns the first two principal components of standardized channels, and the
// share of the variance that each explains. Values that are not finite count as the mean.
func principalComponents(points [][]float64) (scores [2][]float64, explained [2]float64) {
	channels := min(len(points[0]), coverageChannels)
	standard := standardize(points, channels)
	covariance := make([][]float64, channels)
	trace := 0.0
	for a := range channels {
		covariance[a] = make([]float64, channels)
		for b := range channels {
			for _, p := range standard {
				covariance[a][b] += p[a] * p[b] / float64(len(standard))
			}
		}
		trace += covariance[a][a]
	}
	for k := range scores {
		axis, variance := leadingVector(covariance)
		scores[k] = make([]float64, len(standard))
		for i, p := range standard {
			for c, v := range axis {
				scores[k][i] += v * p[c]
			}
		}
		if trace > 0 {
			explained[k] = variance / trace
		}
		for a := range covariance {
			for b := range covariance {
				covariance[a][b] -= variance * axis[a] * axis[b]
			}
		}
	}
	return scores, explained
}

// standardize returns the first channels with mean 0 and standard deviation 1. Constant channels
// become 0.
func standardize(points [][]float64, channels int) [][]float64 {
	out := make([][]float64, len(points))
	for i := range out {
		out[i] = make([]float64, channels)
	}
	for c := range channels {
		n, mean, squares := 0.0, 0.0, 0.0
		for _, p := range points {
			if v := p[c]; v-v == 0 {
				n++
				delta := v - mean
				mean += delta / n
				squares += delta * (v - mean)
			}
		}
		deviation := math.Sqrt(squares / max(n, 1))
		for i, p := range points {
			if v := p[c]; v-v == 0 && deviation > 0 {
				out[i][c] = (v - mean) / deviation
			}
		}
	}
	return out
}

// leadingVector returns the unit eigenvector of the largest eigenvalue of a symmetric matrix, by
// power iteration, and that eigenvalue.
func leadingVector(m [][]float64) (vector []float64, value float64) {
	vector = make([]float64, len(m))
	for i := range vector {
		vector[i] = 1 / float64(i+1)
	}
	for range 200 {
		next := make([]float64, len(m))
		norm := 0.0
		for a := range m {
			for b := range m {
				next[a] += m[a][b] * vector[b]
			}
			norm = math.Hypot(norm, next[a])
		}
		if norm < 1e-12 {
			return make([]float64, len(m)), 0
		}
		for a := range next {
			next[a] /= norm
		}
		vector, value = next, norm
	}
	return vector, value
}

// finiteRange returns the least and the greatest finite value, or zeros if there is none.
func finiteRange(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if v-v == 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > high {
		return 0, 0
	}
	return low, high
}

// countCells counts the points in each cell of a plane, row by row from the lowest y.
func countCells(values [2][]float64, low, high [2]float64) []float64 {
	counts := make([]float64, coverageBins*coverageBins)
	for i := range values[0] {
		cell := [2]int{}
		isFinite := true
		for k := range cell {
			v := values[k][i]
			isFinite = isFinite && v-v == 0
			if isFinite && high[k] > low[k] {
				share := (v - low[k]) / (high[k] - low[k])
				cell[k] = min(coverageBins-1, int(share*coverageBins))
			}
		}
		if isFinite {
			counts[cell[1]*coverageBins+cell[0]]++
		}
	}
	return counts
}
