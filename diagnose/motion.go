package diagnose

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Limits of the search for shared motion.
const (
	motionRate    = 200.0 // Hz of the grid on which motions are compared
	motionLag     = 0.5   // s; larger offsets are not searched for
	motionStreams = 12    // maximum number of streams per episode, those with the most samples
	motionRows    = 1 << 17
	clearPeak     = 0.8
)

// motion is the movement of a stream over time on the common grid. It is one channel, the rate of
// change of a channel, or the magnitude of either over all channels.
type motion struct {
	feature *robocache.Feature
	kind    string
	values  []float64
	valid   []bool      // whether the grid point lies inside the stream
	period  int64       // period of the stream
	times   []int64     // timestamps of samples
	samples []float64   // values of the stream, from which values was interpolated
	start   int64       // first timestamp of the stream in the episode
	prefix  *prefixSums // computed on first use
}

// compareMotions compares the streams of an episode that have different clocks (diagnose.D4).
func (x *examination) compareMotions(e int, lines []streamTimes) {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	var moving []streamTimes
	for _, l := range lines {
		if !hasMotion(&l) {
			continue
		}
		moving = append(moving, l)
		first, last = min(first, l.times[0]), max(last, l.times[len(l.times)-1])
	}
	sort.SliceStable(moving, func(i, j int) bool {
		return len(moving[i].times) > len(moving[j].times)
	})
	if len(moving) > motionStreams {
		moving = moving[:motionStreams]
	}
	// Streams are compared in the dataset's order, with those on the dataset's clock first. The
	// later stream of a pair is measured relative to the earlier one.
	rank := map[string]int{}
	for i, l := range lines {
		rank[l.feature.Key] = i
		if l.feature.Clock == x.ds.Info().Clock {
			rank[l.feature.Key] -= len(lines)
		}
	}
	sort.Slice(moving, func(i, j int) bool {
		return rank[moving[i].feature.Key] < rank[moving[j].feature.Key]
	})
	n := int(float64(last-first)/1e9*motionRate) + 1
	if len(moving) < 2 || n < 200 {
		return
	}
	done := map[[2]string]bool{}
	// Clocks with a finding are skipped, because other streams would only repeat it.
	wrong := map[string]bool{}
	alike := map[[2]string]bool{} // pairs with a clear peak
	for _, w := range searchWindows(n) {
		start := first + int64(float64(w.from)*1e9/motionRate)
		read := map[string][]motion{} // motions of this window, read when first needed
		motionsOf := func(l *streamTimes) []motion {
			m, ok := read[l.feature.Key]
			if !ok {
				m, _ = x.readMotions(e, l, start, w.n) // the check of values reports the error
				read[l.feature.Key] = m
			}
			return m
		}
		for i := range moving {
			for j := i + 1; j < len(moving); j++ {
				f, g := moving[i].feature, moving[j].feature
				clocks := [2]string{f.Clock, g.Clock}
				keys := [2]string{f.Key, g.Key}
				if f.Clock == g.Clock || done[clocks] || alike[keys] {
					continue
				}
				if wrong[f.Clock] || wrong[g.Clock] {
					continue
				}
				a, b := motionsOf(&moving[i]), motionsOf(&moving[j])
				if len(a) == 0 || len(b) == 0 {
					continue
				}
				isAlike, hasFinding := x.comparePair(e, a, b, start)
				alike[keys] = isAlike
				if hasFinding {
					done[clocks] = true
					wrong[g.Clock] = true
				}
			}
		}
	}
}

// hasMotion reports whether a stream can be compared by its motion. Rotations and large rows are
// skipped: the channels of a rotation can jump without fast motion.
func hasMotion(l *streamTimes) bool {
	f := l.feature
	if f.Kind != robocache.KindNumeric || !f.DType.Float() || f.Ragged() || f.Latched {
		return false
	}
	if f.Elements() > 64 || f.Interpolation == "nearest" || len(f.Rotations) > 0 {
		return false
	}
	period := time.Duration(robocache.Period(l.times))
	return len(l.times) >= 50 && period != 0 && period <= 200*time.Millisecond
}

// window is a range of grid points.
type window struct{ from, n int }

// searchWindows returns where motion is searched for. Two minutes are usually enough. If they show
// no clear peak (the robot does not move), one minute in the middle and one at the end follow.
func searchWindows(n int) []window {
	const most, later = 120 * motionRate, 60 * motionRate
	if n <= most {
		return []window{{0, n}}
	}
	out := []window{{0, most}}
	if n > 2*most {
		out = append(out, window{(n - later) / 2, later})
	}
	return append(out, window{n - later, later})
}

// readMotions reads a stream and returns its motions.
func (x *examination) readMotions(e int, l *streamTimes, first int64, n int) ([]motion, error) {
	width := l.feature.Elements()
	// Rows outside the grid are not needed.
	from, _ := slices.BinarySearch(l.times, first)
	from = max(from-1, 0)
	end, _ := slices.BinarySearch(l.times, first+int64(float64(n)*1e9/motionRate)+1)
	rows := min(end-from, motionRows)
	if rows < 50 {
		return nil, nil
	}
	v := make([]float64, 0, rows*width)
	const block = 4096
	raw := make([]byte, block*l.feature.RowBytes())
	for at := 0; at < rows; at += block {
		k := min(block, rows-at)
		part := raw[:k*l.feature.RowBytes()]
		list := robocache.RowsOf(e, from+at, k)
		if err := x.ds.Gather(x.ctx, l.feature.Key, list, part); err != nil {
			return nil, err
		}
		v = robocache.Float64s(v, l.feature.DType, part)
	}
	normalizeChannels(v, rows, width)
	step := robocache.Period(l.times)
	at := l.times[from : from+rows]
	mid := make([]int64, rows) // a change lies between two rows
	for r := range rows {
		mid[r] = at[r]
		if r > 0 {
			mid[r] = at[r-1] + (at[r]-at[r-1])/2
		}
	}
	var out []motion
	add := func(kind string, values []float64, times []int64) {
		m := motion{
			feature: l.feature,
			kind:    kind,
			period:  step,
			times:   times,
			samples: values,
			start:   l.times[0],
		}
		m.values, m.valid = interpolateToGrid(times, values, first, n, 3*step)
		out = append(out, m)
	}
	change, size := make([]float64, rows), make([]float64, rows)
	for _, c := range smoothestChannels(v, rows, width) {
		value, rate := make([]float64, rows), make([]float64, rows)
		for r := range rows {
			value[r] = v[r*width+c]
			if r > 0 && at[r] > at[r-1] {
				rate[r] = (v[r*width+c] - v[(r-1)*width+c]) / (float64(at[r]-at[r-1]) / 1e9)
			}
		}
		name := "channel " + strconv.Itoa(c)
		add(name, value, at)
		add("rate of "+name, rate[1:], mid[1:])
	}
	for r := range rows {
		for c := range width {
			size[r] += v[r*width+c] * v[r*width+c]
			if r > 0 && at[r] > at[r-1] {
				d := (v[r*width+c] - v[(r-1)*width+c]) / (float64(at[r]-at[r-1]) / 1e9)
				change[r] += d * d
			}
		}
		size[r], change[r] = math.Sqrt(size[r]), math.Sqrt(change[r])
	}
	if width > 1 {
		add("size", size, at)
		add("size of change", change[1:], mid[1:])
	}
	return out, nil
}

// normalizeChannels scales each channel of v to mean 0 and variance 1, so that no channel
// dominates. Channels that do not move, or have values that are not finite, become 0.
func normalizeChannels(v []float64, rows, width int) {
	for c := range width {
		var mean, square float64
		for r := range rows {
			mean += v[r*width+c] / float64(rows)
		}
		for r := range rows {
			d := v[r*width+c] - mean
			square += d * d / float64(rows)
		}
		scale := 0.0
		if square > 1e-18 && !math.IsInf(square, 0) && !math.IsNaN(square) {
			scale = 1 / math.Sqrt(square)
		}
		for r := range rows {
			v[r*width+c] = (v[r*width+c] - mean) * scale
			if scale == 0 {
				v[r*width+c] = 0
			}
		}
	}
}

// smoothestChannels returns up to three channels that move, the smoothest first. In a noisy channel
// the values differ most from row to row.
func smoothestChannels(v []float64, rows, width int) []int {
	type channel struct {
		c     int
		rough float64
	}
	var all []channel
	for c := range width {
		var square, change float64
		for r := 1; r < rows; r++ {
			d := v[r*width+c] - v[(r-1)*width+c]
			change += d * d
			square += v[r*width+c] * v[r*width+c]
		}
		if square > 0 {
			all = append(all, channel{c, change / square})
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].rough < all[j].rough })
	var out []int
	for i := range min(len(all), 3) {
		out = append(out, all[i].c)
	}
	return out
}

// interpolateToGrid interpolates linearly to the grid. Points outside the stream or in a gap are
// not valid.
func interpolateToGrid(
	times []int64,
	v []float64,
	first int64,
	n int,
	gap int64,
) (out []float64, valid []bool) {
	out, valid = make([]float64, n), make([]bool, n)
	k := 0
	for i := range n {
		t := first + int64(float64(i)*1e9/motionRate)
		for k+1 < len(times) && times[k+1] <= t {
			k++
		}
		if k+1 >= len(times) || times[k] > t || times[k+1]-times[k] > gap {
			continue
		}
		w := float64(t-times[k]) / float64(times[k+1]-times[k])
		out[i], valid[i] = v[k]+w*(v[k+1]-v[k]), true
	}
	return out, valid
}
