package stats

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"golang.org/x/sync/errgroup"
)

// lerobotBins is the number of bins of lerobot's histogram of an episode.
const lerobotBins = 5000

// lerobotMargin is the distance of lerobot's first and last edge from the extremes.
const lerobotMargin = 1e-10

// AsLeRobot computes the statistics that lerobot computes: the quantiles of each episode are read
// from a histogram of 5,000 bins, and those of the dataset are their mean, weighted by rows. All
// other statistics are those of Compute.
func AsLeRobot(
	ctx context.Context, ds robocache.Dataset, opt Options,
) (robocache.Stats, error) {
	opt.SkipBad = false
	opt.setDefaults(ds)
	episodes := opt.Episodes
	var numeric, cameras []string
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		switch {
		case opt.Keys != nil && !slices.Contains(opt.Keys, f.Key):
		case opt.Keys == nil && opt.Frames == NoFrames && isCamera(f):
		case f.Kind == robocache.KindNumeric && !f.Ragged():
			numeric = append(numeric, f.Key)
		default:
			cameras = append(cameras, f.Key)
		}
	}
	for _, k := range opt.Keys { // an unknown key is an error of Compute
		if ds.Info().Feature(k) == nil {
			cameras = append(cameras, k)
		}
	}
	out := robocache.Stats{}
	if len(cameras) > 0 {
		opt.Keys = cameras
		opt.counted = map[string]*weightedQuantiles{}
		whole, err := Compute(ctx, ds, opt)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, whole)
		for key, q := range opt.counted {
			if fs := out[key]; fs != nil {
				fs.Quantiles = q.named()
			}
		}
	}
	for i, key := range numeric {
		f := ds.Info().Feature(key)
		fs, nonFinite, err := lerobotNumbers(ctx, ds, f, episodes, opt.Threads)
		if err := robocache.At(err, robocache.Where{"stream": key}); err != nil {
			return nil, err
		}
		if fs == nil {
			continue
		}
		if out[key] = fs; nonFinite > 0 && opt.OnFinding != nil {
			opt.OnFinding(nonFiniteFinding(key, nonFinite))
		}
		if opt.Progress != nil {
			opt.Progress(i+1, len(numeric))
		}
	}
	return out, nil
}

func isCamera(f *robocache.Feature) bool {
	return f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo
}

// weightedQuantiles is the weighted mean of the quantiles of episodes.
type weightedQuantiles struct {
	sums  [][]float64 // per quantile and column
	total float64
}

// addEpisode adds the quantiles of an episode: one list per column.
func (w *weightedQuantiles) addEpisode(columns [][]float64, weight float64) {
	if w.sums == nil {
		w.sums = columnsOf(len(Quantiles), len(columns))
	}
	for c, list := range columns {
		for i, q := range list {
			w.sums[i][c] += float64(q * weight)
		}
	}
	w.total += weight
}

// named returns the means by the names of the quantiles.
func (w *weightedQuantiles) named() map[string][]float64 {
	out := map[string][]float64{}
	for i, q := range Quantiles {
		if w.sums == nil {
			break
		}
		for _, sum := range w.sums[i] {
			out[q.Name] = append(out[q.Name], clampFinite(sum/max(1, w.total))+0)
		}
	}
	return out
}

// episodeNumbers is the summary of a stream in one episode.
type episodeNumbers struct {
	moments   *Moments
	quantiles [][]float64 // per column
	rows      int64
}

// lerobotNumbers returns the statistics of a numeric stream, and the number of values that are not
// finite. Episodes are counted in parallel and joined in their order.
func lerobotNumbers(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, episodes []int, threads int,
) (*robocache.FeatureStats, int64, error) {
	width := 1
	for _, d := range f.Shape {
		width = d
	}
	if f.DType.Size() == 0 || f.Elements() <= 0 {
		return nil, 0, nil
	}
	all, quantiles := NewMoments(width), &weightedQuantiles{}
	var rows int64
	const group = 256 // episodes whose summaries are held
	for part := range slices.Chunk(episodes, group) {
		summaries := make([]episodeNumbers, len(part))
		workers := min(threads, len(part))
		g, inner := errgroup.WithContext(ctx)
		for w := range workers {
			g.Go(crash.Func("statistics", func() error {
				c := lerobotCounter{isSingle: isSinglePrecision(f.DType)}
				for i := w * len(part) / workers; i < (w+1)*len(part)/workers; i++ {
					if err := inner.Err(); err != nil {
						return err
					}
					one, err := c.countEpisode(inner, ds, f, part[i], width)
					if err != nil {
						index := ds.Info().EpisodeIndex(part[i])
						return robocache.At(err, robocache.Where{"episode": index})
					}
					summaries[i] = one
				}
				return nil
			}))
		}
		if err := g.Wait(); err != nil {
			return nil, 0, err
		}
		for i := range summaries {
			one := &summaries[i]
			all.Merge(one.moments)
			rows += one.rows
			if one.rows > 0 {
				quantiles.addEpisode(one.quantiles, float64(one.rows))
			}
		}
	}
	fs := combineStats(all, rows, emptyQuantiles(width))
	if rows > 0 {
		fs.Quantiles = quantiles.named()
	}
	return fs, all.NonFinite, nil
}

// emptyQuantiles returns zeros for each column.
func emptyQuantiles(width int) [][]float64 { return columnsOf(width, len(Quantiles)) }

// isSinglePrecision reports whether lerobot's histogram of a type has edges in float32: NumPy's
// result type of the type and float32.
func isSinglePrecision(d robocache.DType) bool {
	return d.Size() <= 2 || d == robocache.Float32
}

// lerobotCounter counts columns of episodes in bins. Its memory is reused.
type lerobotCounter struct {
	isSingle bool
	raw      []byte
	values   []float64
	columns  [][]float64
	bins     lerobotHistogram
}

// countEpisode counts the rows of a stream in one episode.
func (c *lerobotCounter) countEpisode(
	ctx context.Context, ds robocache.Dataset, f *robocache.Feature, episode, width int,
) (out episodeNumbers, err error) {
	blocks, _, err := Values(ctx, ds, f, []int{episode})
	if err != nil {
		return out, err
	}
	c.raw = c.raw[:0]
	if err := blocks(ctx, func(raw []byte) error {
		c.raw = append(c.raw, raw...)
		return nil
	}); err != nil {
		return out, err
	}
	c.values = robocache.Float64s(c.values[:0], f.DType, c.raw)
	out.rows = int64(len(c.values) / f.Elements())
	out.moments = NewMoments(width)
	for range width - len(c.columns) {
		c.columns = append(c.columns, nil)
	}
	for k := range width {
		column := c.columns[k][:0]
		for i := k; i < len(c.values); i += width {
			if v := c.values[i]; v-v == 0 {
				column = append(column, v)
			}
		}
		c.columns[k] = column
		out.moments.NonFinite += int64(len(c.values)/width - len(column))
		out.moments.addColumn(k, column, 1)
		list := make([]float64, len(Quantiles))
		switch {
		case len(column) == 0:
		case out.rows < 2: // no histogram of one row
			for i := range list {
				list[i] = out.moments.Mean(k)
			}
		default:
			c.bins.setRange(out.moments.Min[k], out.moments.Max[k], c.isSingle)
			for _, v := range column {
				c.bins.addValue(v, 1)
			}
			list = c.bins.quantiles()
		}
		out.quantiles = append(out.quantiles, list)
	}
	return out, nil
}

// lerobotHistogram counts values in equal bins, with the edges of numpy.linspace in float32 or
// float64.
type lerobotHistogram struct {
	counts      []int64
	total       int64
	first, last float64 // edges
	step, scale float64
	isSingle    bool
}

// setRange empties the histogram, and sets its edges for values from lo to hi.
func (h *lerobotHistogram) setRange(lo, hi float64, isSingle bool) {
	if h.counts == nil {
		h.counts = make([]int64, lerobotBins)
	}
	clear(h.counts)
	h.total, h.isSingle = 0, isSingle
	h.first, h.last = lo-lerobotMargin, hi+lerobotMargin
	if isSingle {
		h.first = float64(float32(lo) - float32(lerobotMargin))
		h.last = float64(float32(hi) + float32(lerobotMargin))
		h.step = float64((float32(h.last) - float32(h.first)) / lerobotBins)
	} else {
		h.step = (h.last - h.first) / lerobotBins
	}
	h.scale = lerobotBins / (h.last - h.first)
}

// edge returns the lower edge of bin i.
func (h *lerobotHistogram) edge(i int) float64 {
	switch {
	case i >= lerobotBins:
		return h.last
	case h.isSingle && h.step == 0:
		delta := float32(h.last) - float32(h.first)
		return float64(float32(float32(i)/lerobotBins*delta) + float32(h.first))
	case h.isSingle:
		return float64(float32(float32(i)*float32(h.step)) + float32(h.first))
	case h.step == 0:
		return float64(float64(i)/lerobotBins*(h.last-h.first)) + h.first
	}
	return float64(float64(i)*h.step) + h.first
}

// addValue counts a finite value n times.
func (h *lerobotHistogram) addValue(v float64, n int64) {
	h.total += n
	if v >= h.last {
		h.counts[lerobotBins-1] += n
		return
	}
	i := min(max(int((v-h.first)*h.scale), 0), lerobotBins-1)
	for i > 0 && h.edge(i) > v {
		i--
	}
	for i < lerobotBins-1 && h.edge(i+1) <= v {
		i++
	}
	h.counts[i] += n
}

// quantiles returns the quantiles, interpolated in their bins.
func (h *lerobotHistogram) quantiles() []float64 {
	out := make([]float64, len(Quantiles))
	at, before := 0, int64(0) // before: number of values in the bins below at
	for i, q := range Quantiles {
		target := float64(q.Q * float64(h.total))
		for at < lerobotBins-1 && float64(before+h.counts[at]) < target {
			before += h.counts[at]
			at++
		}
		if out[i] = h.edge(at); at > 0 && h.counts[at] > 0 {
			share := (target - float64(before)) / float64(h.counts[at])
			width := h.edge(at+1) - h.edge(at)
			if h.isSingle {
				width = float64(float32(width))
			}
			out[i] += float64(share * width)
		}
	}
	return out
}

// episodeQuantiles returns the quantiles of each channel as lerobot computes them for the images of
// one episode.
func (p *Pixels) episodeQuantiles() (out [][]float64) {
	var bins lerobotHistogram
	for _, counts := range p.hist {
		value := func(v int) float64 { return float64(float32(p.value[v])) }
		scale := 1.0
		if !p.isDepth() {
			value, scale = func(v int) float64 { return float64(v) }, 255
		}
		lo, hi := math.Inf(1), math.Inf(-1)
		for v, n := range counts {
			if n > 0 {
				lo, hi = min(lo, value(v)), max(hi, value(v))
			}
		}
		list := make([]float64, len(Quantiles))
		if lo <= hi {
			bins.setRange(lo, hi, true)
			for v, n := range counts {
				if n > 0 {
					bins.addValue(value(v), n)
				}
			}
			list = bins.quantiles()
			for i := range list {
				list[i] /= scale
			}
		}
		out = append(out, list)
	}
	return out
}
