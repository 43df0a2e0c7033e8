package query

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// slackNS is the slack of durations: timestamps on a grid are rounded.
const slackNS = 1000

// nanoseconds converts seconds. Values beyond a century become one.
func nanoseconds(seconds float64) int64 { return int64(math.Round(min(seconds, 3e9) * 1e9)) }

// source is the dataset of a bound expression.
type source struct {
	ds      robocache.Dataset
	info    *robocache.Info
	index   *Index // nil: none
	threads int
}

// episodeRun evaluates nodes for one episode. A goroutine uses it for many episodes in turn.
type episodeRun struct {
	ctx      context.Context
	source   *source
	position int
	gathered map[string][][]float64 // channels of streams that were read from the dataset
	stamps   map[string][]int64
	floatBuf arena[float64]
	boolBuf  arena[bool]
	floatRow arena[[]float64]
}

// arena allocates slices that are valid until it is reset.
type arena[T any] struct {
	block []T
	used  int
}

// take returns n zero elements.
func (a *arena[T]) take(n int) []T {
	if a.used+n > len(a.block) {
		a.block, a.used = make([]T, max(n, 2*len(a.block), 1024)), 0
	}
	out := a.block[a.used : a.used+n : a.used+n]
	a.used += n
	clear(out)
	return out
}

func (x *episodeRun) floats(n int) []float64     { return x.floatBuf.take(n) }
func (x *episodeRun) bools(n int) []bool         { return x.boolBuf.take(n) }
func (x *episodeRun) channels(n int) [][]float64 { return x.floatRow.take(n) }

// start begins with another episode.
func (x *episodeRun) start(position int) {
	x.position = position
	clear(x.gathered)
	clear(x.stamps)
	x.floatBuf.used, x.boolBuf.used, x.floatRow.used = 0, 0, 0
}

// times returns the timestamps of a clock.
func (x *episodeRun) times(clock string) ([]int64, error) {
	if times, ok := x.stamps[clock]; ok {
		return times, nil
	}
	var times []int64
	var err error
	if clock == "" && x.source.index != nil {
		times = x.source.index.timesOf(x.position)
	}
	if times == nil {
		times, err = x.source.ds.Times(x.ctx, x.position, clock)
	}
	if err == nil {
		x.stamps[clock] = times
	}
	return times, err
}

// read returns the channels of a column. Rows without a value are NaN.
func (x *episodeRun) read(c *column) ([][]float64, error) {
	all, ok := x.gathered[c.feature.Key]
	if !ok {
		if x.source.index.has(c.feature.Key) {
			return x.source.index.channelsOf(x, c), nil
		}
		var err error
		if all, err = x.gather(c.feature); err != nil {
			return nil, err
		}
		x.gathered[c.feature.Key] = all
	}
	if c.channel >= 0 {
		return all[c.channel : c.channel+1], nil
	}
	return all, nil
}

// gather reads a stream from the dataset, one slice per channel.
func (x *episodeRun) gather(f *robocache.Feature) ([][]float64, error) {
	ds := x.source.ds
	width := f.Elements()
	out := make([][]float64, width)
	lacks := ds.Capabilities().Lacks
	isLacking := lacks != nil && lacks(x.position, f.Key)
	n, err := ds.Len(x.position), error(nil)
	if !isLacking {
		n, err = robocache.RowsIn(x.ctx, ds, x.position, f)
	}
	if err != nil {
		return nil, err
	}
	valid := make([]uint8, n)
	var values []float64
	if !isLacking {
		rows := robocache.RowsOf(x.position, 0, n)
		raw := make([]byte, n*f.RowBytes())
		if err := ds.Gather(x.ctx, f.Key, rows, raw); err != nil {
			return nil, err
		}
		values = robocache.Float64s(nil, f.DType, raw)
		if valid, err = robocache.Validity(x.ctx, ds, f, rows); err != nil {
			return nil, err
		}
	}
	for c := range out {
		out[c] = make([]float64, n)
		for i := range out[c] {
			if valid != nil && valid[i] == 0 {
				out[c][i] = math.NaN()
			} else {
				out[c][i] = values[i*width+c]
			}
		}
	}
	return out, nil
}

// evalPair evaluates two operands. Signals are brought to one clock.
func (x *episodeRun) evalPair(left, right *node) (l, r value, err error) {
	if l, err = left.eval(x); err != nil || left == right {
		return l, l, err
	}
	if r, err = right.eval(x); err != nil {
		return l, r, err
	}
	return l, r, x.unifyClocks(&l, left.kind, &r, right.kind)
}

// evalRows evaluates two nodes and combines their rows. Truths of the episode are those of all
// rows.
func (x *episodeRun) evalRows(left, right *node, combine func(a, b bool) bool) (value, error) {
	l, r, err := x.evalPair(left, right)
	if err != nil {
		return value{}, err
	}
	n := max(len(l.rows), len(r.rows))
	at := func(v *value, k kind, i int) bool {
		if k == truthKind {
			return v.truth
		}
		return v.rows[i]
	}
	rows := x.bools(n)
	for i := range rows {
		rows[i] = combine(at(&l, left.kind, i), at(&r, right.kind, i))
	}
	return value{rows: rows, clock: l.clock}, nil
}

// unifyClocks brings two values to the rows of the dataset if their clocks differ.
func (x *episodeRun) unifyClocks(l *value, lk kind, r *value, rk kind) error {
	if !lk.isRowwise() {
		l.clock = r.clock
	}
	if !rk.isRowwise() {
		r.clock = l.clock
	}
	if l.clock == r.clock {
		return nil
	}
	if err := x.toRows(l, lk); err != nil {
		return err
	}
	return x.toRows(r, rk)
}

// toRows brings a value from its own clock to the rows of the dataset.
func (x *episodeRun) toRows(v *value, k kind) error {
	if v.clock == "" {
		return nil
	}
	own, err := x.times(v.clock)
	if err != nil {
		return err
	}
	times, err := x.times("")
	if err != nil {
		return err
	}
	held, err := x.heldRows(v.clock, "")
	if err != nil {
		return err
	}
	v.clock = ""
	rowAfter := func(i int) int { // first row at or after a sample
		row, _ := slices.BinarySearch(times, own[i])
		return min(row, len(times)-1)
	}
	switch k {
	case signalKind:
		channels := x.channels(len(v.channels))
		for c := range channels {
			channels[c] = x.floats(len(times))
			for i, from := range held {
				channels[c][i] = math.NaN()
				if from >= 0 {
					channels[c][i] = v.channels[c][from]
				}
			}
		}
		v.channels = channels
	case conditionKind:
		rows := x.bools(len(times))
		for i, from := range held {
			rows[i] = from >= 0 && v.rows[from]
		}
		v.rows = rows
	case eventsKind:
		rows := x.bools(len(times))
		for i, is := range v.rows {
			if is && len(times) > 0 {
				rows[rowAfter(i)] = true
			}
		}
		v.rows = rows
	case rangesKind:
		var ranges []span
		for _, s := range v.ranges {
			if len(times) > 0 {
				ranges = append(ranges, span{rowAfter(s.from), rowAfter(s.to-1) + 1})
			}
		}
		v.ranges = ranges
	}
	return nil
}

// heldRows returns, for each row of the clock to, the last row of the clock from at or before it;
// -1 if there is none.
func (x *episodeRun) heldRows(from, to string) ([]int, error) {
	own, err := x.times(from)
	if err != nil {
		return nil, err
	}
	times, err := x.times(to)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(times))
	k := -1
	for i, t := range times {
		for k+1 < len(own) && own[k+1] <= t {
			k++
		}
		out[i] = k
	}
	return out, nil
}
