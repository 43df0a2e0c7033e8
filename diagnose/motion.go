package diagnose

import (
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Limits of the search for shared motion.
const (
	motionRate    = 200.0 // Hz of the grid on which motions are compared
	motionLag     = 0.5   // s: larger offsets are not looked for
	motionStreams = 12    // the streams of an episode that move most clearly
	motionRows    = 1 << 17
	clearPeak     = 0.8
)

// motion is how a stream moves over time, on the common grid: one of its channels, the channel's
// rate of change, or the size of either over all channels.
type motion struct {
	f     *robocache.Feature
	kind  string
	v     []float64
	valid []bool    // the grid point lies inside the stream
	step  int64     // the stream's period
	at    []int64   // timestamps of …
	raw   []float64 // … what v was made of
	first int64     // the stream's first timestamp in the episode
	sums  *running  // made when they are first asked for
}

// motions compares the streams of an episode that lie on different clocks (D4).
func (x *examination) motions(e int, lines []line) {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	var moving []line
	for _, l := range lines {
		if l.f.Kind != robocache.KindNumeric || !l.f.DType.Float() || l.f.Ragged() || l.f.Latched || len(l.times) < 50 || robocache.Period(l.times) == 0 || robocache.Period(l.times) > 200_000_000 ||
			// the channels of a rotation jump where nothing moves fast
			l.f.Elements() > 64 || l.f.Interpolation == "nearest" ||
			len(l.f.Rotations) > 0 {
			continue
		}
		moving = append(moving, l)
		first, last = min(first, l.times[0]), max(last, l.times[len(l.times)-1])
	}
	sort.SliceStable(
		moving,
		func(i, j int) bool { return len(moving[i].times) > len(moving[j].times) },
	)
	if len(moving) > motionStreams {
		moving = moving[:motionStreams]
	}
	// In the dataset's order: the anchor, or what is named first, is what the others are measured
	// against.
	place := map[string]int{}
	for i, l := range lines {
		place[l.f.Key] = i
		if l.f.Clock == x.ds.Info().Clock {
			place[l.f.Key] -= len(lines)
		}
	}
	sort.Slice(
		moving,
		func(i, j int) bool { return place[moving[i].f.Key] < place[moving[j].f.Key] },
	)
	n := int(float64(last-first)/1e9*motionRate) + 1
	if len(moving) < 2 || n < 200 {
		return
	}
	done := map[[2]string]bool{}
	// clocks that were found to run apart from one ahead of them: beside others they would only be
	// told again
	wrong := map[string]bool{}
	alike := map[[2]string]bool{} // pairs with a clear peak
	for _, w := range windows(n) {
		start := first + int64(float64(w.from)*1e9/motionRate)
		read := map[string][]motion{} // of this window, where a pair is still open
		of := func(l *line) []motion {
			m, ok := read[l.f.Key]
			if !ok {
				m, _ = x.motion(e, l, start, w.n) // values has said so
				read[l.f.Key] = m
			}
			return m
		}
		for i := range moving {
			for j := i + 1; j < len(moving); j++ {
				f, g := moving[i].f, moving[j].f
				clocks, keys := [2]string{f.Clock, g.Clock}, [2]string{f.Key, g.Key}
				if clocks[0] == clocks[1] || done[clocks] || wrong[clocks[0]] || wrong[clocks[1]] ||
					alike[keys] {
					continue
				}
				a, b := of(&moving[i]), of(&moving[j])
				if len(a) == 0 || len(b) == 0 {
					continue
				}
				seen, said := x.pair(e, a, b, start)
				alike[keys] = seen
				if said {
					done[clocks], wrong[clocks[1]] = true, true
				}
			}
		}
	}
}

// window is a stretch of the grid.
type window struct{ from, n int }

// windows are where motion is looked for: two minutes say enough, and where they show no clear peak
// (the robot stands still) as much again: half of it in the middle, half at the end.
func windows(n int) []window {
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

// motion reads a stream and gives its motions.
func (x *examination) motion(e int, l *line, first int64, n int) ([]motion, error) {
	width := l.f.Elements()
	// What lies beyond the grid says nothing.
	from, _ := slices.BinarySearch(l.times, first)
	from = max(from-1, 0)
	end, _ := slices.BinarySearch(l.times, first+int64(float64(n)*1e9/motionRate)+1)
	rows := min(end-from, motionRows)
	if rows < 50 {
		return nil, nil
	}
	v := make([]float64, 0, rows*width)
	const block = 4096
	raw := make([]byte, block*l.f.RowBytes())
	for at := 0; at < rows; at += block {
		k := min(block, rows-at)
		part := raw[:k*l.f.RowBytes()]
		if err := x.ds.Gather(x.ctx, l.f.Key, robocache.RowsOf(e, from+at, k), part); err != nil {
			return nil, err
		}
		v = robocache.Float64s(v, l.f.DType, part)
	}
	// Each channel at unit variance, so that none decides alone.
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
	step := robocache.Period(l.times)
	at := l.times[from : from+rows]
	mid := make([]int64, rows) // a change is between two rows
	for r := range rows {
		mid[r] = at[r]
		if r > 0 {
			mid[r] = at[r-1] + (at[r]-at[r-1])/2
		}
	}
	var out []motion
	add := func(kind string, values []float64, times []int64) {
		m := motion{f: l.f, kind: kind, step: step, at: times, raw: values, first: l.times[0]}
		m.v, m.valid = onGrid(times, values, first, n, 3*step)
		out = append(out, m)
	}
	change, size := make([]float64, rows), make([]float64, rows)
	for _, c := range liveliest(v, rows, width) {
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

// liveliest are up to three channels that move, the smoothest first: noise has most of its change
// from row to row.
func liveliest(v []float64, rows, width int) []int {
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

// onGrid interpolates linearly onto the grid; points outside the stream or in a gap are not valid.
func onGrid(
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
