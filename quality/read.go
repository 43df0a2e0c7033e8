package quality

import (
	"context"
	"errors"
	"math"

	"github.com/goatnote-inc/robocache"
)

// readBlock is the number of bytes that are read from a stream at once.
const readBlock = 1 << 20

// assumedRate is the rate of rows without a clock, in Hz.
const assumedRate = 10

// reader reads the numbers of episodes.
type reader struct {
	ds     robocache.Dataset
	roles  *streamRoles
	scale  *Scale
	budget int64
	raw    []byte
	values []float64
	// slab is the memory of the columns of an episode, which the next episode uses again.
	slab  []float64
	used  int
	lines map[string]*timeline // of the episode, by clock
}

// timeline is the rows of a clock in seconds from the start of the episode, and their median step.
type timeline struct {
	seconds []float64
	period  float64
}

// floats returns n numbers that are valid until the next episode.
func (r *reader) floats(n int) []float64 {
	if r.used+n > len(r.slab) {
		r.slab, r.used = make([]float64, max(2*len(r.slab), n, 1<<14)), 0
	}
	out := r.slab[r.used : r.used+n : r.used+n]
	r.used += n
	return out
}

// readEpisode reads the numbers of an episode. The result is valid until the next call.
func (r *reader) readEpisode(ctx context.Context, e int) (*recording, error) {
	r.used, r.lines = 0, map[string]*timeline{}
	x := &recording{rows: r.ds.Len(e), isRelative: r.roles.isRelative, duration: math.NaN()}
	if err := r.checkBudget(ctx, e); err != nil {
		return nil, err
	}
	times, start, err := r.readClocks(ctx, e, x)
	if err != nil {
		return nil, err
	}
	if err := r.readPairs(ctx, e, x); err != nil {
		return nil, err
	}
	if err := r.readOutcome(ctx, e, x); err != nil {
		return nil, err
	}
	columns := map[string][][]float64{}
	for _, f := range r.roles.features() {
		if robocache.Lacks(r.ds, e, f.Key) {
			continue
		}
		if columns[f.Key], err = r.readColumns(ctx, e, f); err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": f.Key})
		}
	}
	build := func(parts []part) *signal { return r.buildSignal(x, parts, columns, times, start) }
	x.state, x.action = build(r.roles.state), build(r.roles.action)
	x.gripperState, x.gripperCommand = build(r.roles.gripperState), build(r.roles.gripperCommand)
	x.force = build(r.roles.force)
	switch x.motion = x.state; {
	case x.motion != nil && len(x.motion.columns) > 0 || x.action == nil:
	case x.isRelative:
		x.motion = r.sumRates(x.action)
	default:
		x.motion = x.action
	}
	x.prepare()
	return x, nil
}

// checkBudget returns ErrResourceLimit if the numbers of an episode exceed the budget.
func (r *reader) checkBudget(ctx context.Context, e int) error {
	var bytes int64
	for _, f := range append(r.roles.features(), r.roles.success, r.roles.reward) {
		if f == nil {
			continue
		}
		n, err := robocache.RowsIn(ctx, r.ds, e, f)
		if err != nil {
			return err
		}
		bytes += int64(n) * int64(f.Elements()+1) * 24
	}
	if bytes > r.budget {
		return robocache.ResourceLimit("quality", nil,
			"the numbers of the episode take %d bytes, and the budget is %d", bytes, r.budget).
			WithHint("Pass a larger budget: %s.", robocache.Option("budget", bytes))
	}
	return nil
}

// readClocks reads the timestamps of all streams. It returns them by key, and the first timestamp.
func (r *reader) readClocks(
	ctx context.Context, e int, x *recording,
) (times map[string][]int64, start int64, err error) {
	times, byClock := map[string][]int64{}, map[string][]int64{}
	start, last := int64(math.MaxInt64), int64(math.MinInt64)
	features := r.ds.Info().Features
	for i := range features {
		f := &features[i]
		if f.Default || robocache.Lacks(r.ds, e, f.Key) {
			continue
		}
		t, known := byClock[f.Clock]
		if !known {
			if t, err = r.readTimes(ctx, e, f); err != nil {
				return nil, 0, robocache.At(err, robocache.Where{"stream": f.Key})
			}
			byClock[f.Clock] = t
			isSampled := f.Kind != robocache.KindText && f.Kind != robocache.KindEvent
			c := clock{key: f.Key, times: t, hasRate: isSampled && !f.Latched}
			c.measureSteps()
			x.clocks = append(x.clocks, c)
			if n := len(t); n > 0 && !f.Latched {
				start, last = min(start, t[0]), max(last, t[n-1])
			}
		}
		times[f.Key] = t
	}
	if last >= start {
		x.duration = float64(last-start) / 1e9
	} else {
		start = 0
	}
	x.start = start
	return times, start, nil
}

// readTimes returns the timestamps of a stream. Rows without a clock have assumedRate.
func (r *reader) readTimes(ctx context.Context, e int, f *robocache.Feature) ([]int64, error) {
	times, err := r.ds.Times(ctx, e, f.Key)
	if errors.Is(err, robocache.ErrNoClock) {
		n, err := robocache.RowsIn(ctx, r.ds, e, f)
		if err != nil {
			return nil, err
		}
		times = make([]int64, n)
		for i := range times {
			times[i] = int64(i) * 1e9 / assumedRate
		}
		return times, nil
	}
	return times, err
}

// readColumns reads a stream of numbers, column by column. Masked rows are NaN.
func (r *reader) readColumns(
	ctx context.Context, e int, f *robocache.Feature,
) ([][]float64, error) {
	n, err := robocache.RowsIn(ctx, r.ds, e, f)
	if err != nil {
		return nil, err
	}
	d := f.Elements()
	columns := make([][]float64, d)
	for c := range columns {
		columns[c] = r.floats(n)
	}
	block := max(1, readBlock/max(1, f.RowBytes()))
	for at := 0; at < n; at += block {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows := robocache.RowsOf(e, at, min(block, n-at))
		size := len(rows) * f.RowBytes()
		if cap(r.raw) < size {
			r.raw = make([]byte, size)
		}
		raw := r.raw[:size]
		if err := r.ds.Gather(ctx, f.Key, rows, raw); err != nil {
			return nil, err
		}
		valid, err := robocache.Validity(ctx, r.ds, f, rows)
		if err != nil {
			return nil, err
		}
		r.values = robocache.Float64s(r.values[:0], f.DType, raw)
		values := r.values
		for c, column := range columns {
			to := column[at : at+len(rows)]
			for i := range to {
				to[i] = values[i*d+c]
				if valid != nil && valid[i] == 0 {
					to[i] = math.NaN()
				}
			}
		}
	}
	return columns, nil
}

// buildSignal scales the channels of a role. It returns nil if the episode lacks the role. The
// parts have the rows of the first one: a part with another clock is interpolated.
func (r *reader) buildSignal(
	x *recording,
	parts []part,
	columns map[string][][]float64,
	times map[string][]int64,
	start int64,
) *signal {
	var s *signal
	for _, p := range parts {
		own := columns[p.feature.Key]
		if own == nil {
			continue
		}
		line := r.lines[p.feature.Clock]
		if line == nil {
			seconds := secondsOf(times[p.feature.Key], len(own[0]), start)
			line = &timeline{seconds, medianStep(seconds)}
			r.lines[p.feature.Clock] = line
		}
		seconds := line.seconds
		if s == nil {
			s = &signal{seconds: seconds, period: line.period}
		}
		for _, c := range p.channels {
			scale := r.scale.Streams[p.feature.Key][c]
			width := scale.width()
			if width <= 0 || len(own[c]) == 0 {
				x.countValues(own[c])
				continue
			}
			v := r.floats(len(own[c]))
			isFinite := true
			for i, raw := range own[c] {
				scaled := (raw - scale.Low) / width
				v[i] = scaled
				isFinite = isFinite && scaled-scaled == 0
			}
			if isFinite {
				x.values += len(v)
			} else {
				x.countValues(own[c])
				fillGaps(v)
			}
			if isConstant(v) {
				s.dead++
			}
			if len(v) != len(s.seconds) {
				v = interpolate(seconds, v, s.seconds)
			}
			s.columns, s.scales = append(s.columns, v), append(s.scales, scale)
		}
	}
	return s
}

// countValues counts the values of a channel, and those that are not finite.
func (x *recording) countValues(v []float64) {
	x.values += len(v)
	for _, a := range v {
		if a-a != 0 {
			x.notFinite++
		}
	}
}

// sumRates returns a relative action as positions.
func (r *reader) sumRates(s *signal) *signal {
	out := *s
	out.columns = make([][]float64, len(s.columns))
	for c, v := range s.columns {
		width := s.scales[c].width()
		zero := -s.scales[c].Low / width // the scaled value of no movement
		sum := r.floats(len(v))
		total := 0.0
		for i := range v {
			total += v[i] - zero
			sum[i] = total
		}
		out.columns[c] = sum
	}
	return &out
}

// secondsOf returns n timestamps as seconds since start, made ascending.
func secondsOf(times []int64, n int, start int64) []float64 {
	out := make([]float64, n)
	for i := range out {
		if i < len(times) {
			out[i] = float64(times[i]-start) / 1e9
		}
		if i > 0 && out[i] < out[i-1] {
			out[i] = out[i-1]
		}
	}
	return out
}

// medianStep returns the median of the positive steps; 0 if there are fewer than two.
func medianStep(seconds []float64) float64 {
	steps := make([]float64, 0, len(seconds))
	for i := 1; i < len(seconds); i++ {
		if d := seconds[i] - seconds[i-1]; d > 0 {
			steps = append(steps, d)
		}
	}
	if len(steps) < 2 {
		return 0
	}
	return quickQuantile(steps, 0.5)
}

func isConstant(v []float64) bool {
	for _, x := range v {
		if x != v[0] {
			return false
		}
	}
	return true
}

// interpolate returns the values at times to, linearly, and the first or last value outside.
func interpolate(seconds, v, to []float64) []float64 {
	out := make([]float64, len(to))
	k := 0
	for i, t := range to {
		for k+1 < len(seconds) && seconds[k+1] <= t {
			k++
		}
		out[i] = v[k]
		if k+1 < len(v) && t > seconds[k] && seconds[k+1] > seconds[k] {
			out[i] += (t - seconds[k]) / (seconds[k+1] - seconds[k]) * (v[k+1] - v[k])
		}
	}
	return out
}
