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
	var moving []streamTimes
	for _, l := range lines {
		if hasMotion(&l) {
			moving = append(moving, l)
		}
	}
	if len(moving) < 2 {
		return
	}
	first := moving[0].times[0]
	last := first
	for _, l := range moving {
		first = min(first, l.times[0])
		last = max(last, l.times[len(l.times)-1])
	}
	n := int(float64(last-first)/1e9*motionRate) + 1
	if n < 200 {
		return
	}
	search := motionSearch{
		examination: x,
		episode:     e,
		streams:     x.chooseMoving(lines, moving),
		done:        map[[2]string]bool{},
		wrong:       map[string]bool{},
		alike:       map[[2]string]bool{},
	}
	for _, w := range searchWindows(n) {
		start := first + int64(float64(w.from)*1e9/motionRate)
		search.searchWindow(start, w.n)
	}
}

// chooseMoving returns the moving streams with most samples, at most motionStreams. They are in the
// dataset's order, with those on the dataset's clock first: the later stream of a pair is measured
// relative to the earlier one.
func (x *examination) chooseMoving(lines, moving []streamTimes) []streamTimes {
	sort.SliceStable(moving, func(i, j int) bool {
		return len(moving[i].times) > len(moving[j].times)
	})
	if len(moving) > motionStreams {
		moving = moving[:motionStreams]
	}
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
	return moving
}

// motionSearch searches the streams of an episode for motions that are alike.
type motionSearch struct {
	examination *examination
	episode     int
	streams     []streamTimes
	done        map[[2]string]bool // pairs of clocks with a finding
	// Clocks with a finding are skipped, because other streams would only repeat it.
	wrong map[string]bool
	alike map[[2]string]bool // pairs of streams with a clear peak
}

// searchWindow compares all pairs of streams over n grid points from start.
func (s *motionSearch) searchWindow(start int64, n int) {
	read := map[string][]motion{} // motions of this window, read when first needed
	motionsOf := func(l *streamTimes) []motion {
		m, ok := read[l.feature.Key]
		if !ok {
			// the check of values reports the error
			m, _ = s.examination.readMotions(s.episode, l, start, n)
			read[l.feature.Key] = m
		}
		return m
	}
	for i := range s.streams {
		for j := i + 1; j < len(s.streams); j++ {
			f, g := s.streams[i].feature, s.streams[j].feature
			clocks := [2]string{f.Clock, g.Clock}
			keys := [2]string{f.Key, g.Key}
			isKnown := s.done[clocks] || s.alike[keys]
			if f.Clock == g.Clock || isKnown || s.wrong[f.Clock] || s.wrong[g.Clock] {
				continue
			}
			a := motionsOf(&s.streams[i])
			b := motionsOf(&s.streams[j])
			if len(a) == 0 || len(b) == 0 {
				continue
			}
			isAlike, hasFinding := s.examination.comparePair(s.episode, a, b, start)
			s.alike[keys] = isAlike
			if hasFinding {
				s.done[clocks] = true
				s.wrong[g.Clock] = true
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

// readMotions reads a stream and returns its motions over n grid points from first.
func (x *examination) readMotions(e int, l *streamTimes, first int64, n int) ([]motion, error) {
	// Rows outside the grid are not needed.
	from, _ := slices.BinarySearch(l.times, first)
	from = max(from-1, 0)
	end, _ := slices.BinarySearch(l.times, first+int64(float64(n)*1e9/motionRate)+1)
	rows := min(end-from, motionRows)
	if rows < 50 {
		return nil, nil
	}
	values, err := x.readValues(e, l, from, rows)
	if err != nil {
		return nil, err
	}
	r := timedRows{
		times:  l.times[from : from+rows],
		values: values,
		width:  l.feature.Elements(),
	}
	normalizeChannels(values, rows, r.width)
	middles := r.middles()
	step := robocache.Period(l.times)
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
	for _, c := range smoothestChannels(values, rows, r.width) {
		name := "channel " + strconv.Itoa(c)
		channel, rate := r.channel(c)
		add(name, channel, r.times)
		add("rate of "+name, rate[1:], middles[1:])
	}
	if r.width > 1 {
		size, change := r.sizes()
		add("size", size, r.times)
		add("size of change", change[1:], middles[1:])
	}
	return out, nil
}

// readValues reads rows of a stream of numbers.
func (x *examination) readValues(e int, l *streamTimes, from, rows int) ([]float64, error) {
	const block = 4096
	values := make([]float64, 0, rows*l.feature.Elements())
	raw := make([]byte, block*l.feature.RowBytes())
	for at := 0; at < rows; at += block {
		k := min(block, rows-at)
		part := raw[:k*l.feature.RowBytes()]
		list := robocache.RowsOf(e, from+at, k)
		if err := x.ds.Gather(x.ctx, l.feature.Key, list, part); err != nil {
			return nil, err
		}
		values = robocache.Float64s(values, l.feature.DType, part)
	}
	return values, nil
}

// timedRows are rows of numbers with their times.
type timedRows struct {
	times  []int64
	values []float64 // row by row
	width  int       // values in a row
}

// middles returns the time in the middle between each row and the row before. A change lies between
// two rows.
func (r *timedRows) middles() []int64 {
	out := make([]int64, len(r.times))
	for i, t := range r.times {
		out[i] = t
		if i > 0 {
			before := r.times[i-1]
			out[i] = before + (t-before)/2
		}
	}
	return out
}

// rateAt returns the change of a channel per second from the row before, or 0 if there is none.
func (r *timedRows) rateAt(row, channel int) float64 {
	if row == 0 || r.times[row] <= r.times[row-1] {
		return 0
	}
	at := row*r.width + channel
	seconds := float64(r.times[row]-r.times[row-1]) / 1e9
	return (r.values[at] - r.values[at-r.width]) / seconds
}

// channel returns the values and the rates of a channel.
func (r *timedRows) channel(c int) (values, rates []float64) {
	values = make([]float64, len(r.times))
	rates = make([]float64, len(r.times))
	for i := range r.times {
		values[i] = r.values[i*r.width+c]
		rates[i] = r.rateAt(i, c)
	}
	return values, rates
}

// sizes returns the Euclidean lengths of each row and of its rates.
func (r *timedRows) sizes() (size, change []float64) {
	size = make([]float64, len(r.times))
	change = make([]float64, len(r.times))
	for i := range r.times {
		for c := range r.width {
			value := r.values[i*r.width+c]
			rate := r.rateAt(i, c)
			size[i] += value * value
			change[i] += rate * rate
		}
		size[i] = math.Sqrt(size[i])
		change[i] = math.Sqrt(change[i])
	}
	return size, change
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
		out[i] = v[k] + w*(v[k+1]-v[k])
		valid[i] = true
	}
	return out, valid
}
