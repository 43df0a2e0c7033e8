package query

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// aggregates are the functions of all values of a signal, by channel and row. They return NaN for
// no values.
var aggregates = map[string]func(channels [][]float64) float64{
	"min":  func(channels [][]float64) float64 { return foldChannels(channels, slices.Min[[]float64]) },
	"max":  func(channels [][]float64) float64 { return foldChannels(channels, slices.Max[[]float64]) },
	"mean": meanValue,
	"std":  deviation,
	"first": func(channels [][]float64) float64 {
		return channels[0][0]
	},
	"last": func(channels [][]float64) float64 {
		last := channels[len(channels)-1]
		return last[len(last)-1]
	},
}

// foldChannels returns the fold of the folds of channels. slices.Min and Max return NaN if any
// value is NaN.
func foldChannels(channels [][]float64, fold func([]float64) float64) float64 {
	out := make([]float64, len(channels))
	for c := range channels {
		out[c] = fold(channels[c])
	}
	return fold(out)
}

// meanValue returns the mean of all values.
func meanValue(channels [][]float64) float64 {
	sum := 0.0
	for _, channel := range channels {
		for _, v := range channel {
			sum += v
		}
	}
	return sum / float64(len(channels)*len(channels[0]))
}

// deviation returns the standard deviation of all values, with the divisor n.
func deviation(channels [][]float64) float64 {
	mean, square := meanValue(channels), 0.0
	for _, channel := range channels {
		for _, v := range channel {
			square += (v - mean) * (v - mean)
		}
	}
	return math.Sqrt(square / float64(len(channels)*len(channels[0])))
}

// signalFunctions are the functions from a signal to a signal. times is nil unless the function
// needs timestamps.
var signalFunctions = map[string]struct {
	needsTimes bool
	width      func(of int) int
	compute    func(x *episodeRun, in [][]float64, times []int64) [][]float64
	reach      func(r reach, width int) reach
}{
	"abs": {
		width: func(of int) int { return of },
		compute: func(x *episodeRun, in [][]float64, _ []int64) [][]float64 {
			out := x.channelsLike(in)
			for c, channel := range in {
				for i, v := range channel {
					out[c][i] = math.Abs(v)
				}
			}
			return out
		},
		reach: absReach,
	},
	"norm": {width: func(int) int { return 1 }, compute: normRows, reach: normReach},
	"diff": {
		width:   func(of int) int { return of },
		compute: diffRows,
		reach: func(r reach, _ int) reach {
			// One row has the difference 0.
			return reach{lo: min(0, r.lo-r.hi), hi: max(0, r.hi-r.lo), nan: true}
		},
	},
	"speed": {
		needsTimes: true,
		width:      func(int) int { return 1 },
		compute: func(x *episodeRun, in [][]float64, times []int64) [][]float64 {
			out := normRows(x, diffRows(x, in, nil), nil)
			for i := range out[0] {
				k := max(1, i)
				if len(times) < 2 {
					break
				}
				step := float64(times[k]-times[k-1]) / 1e9
				if out[0][i] /= step; step <= 0 {
					out[0][i] = math.NaN()
				}
			}
			return out
		},
	},
}

// channelsLike returns zero channels with the rows of in.
func (x *episodeRun) channelsLike(in [][]float64) [][]float64 {
	out := x.channels(len(in))
	for c := range out {
		out[c] = x.floats(len(in[c]))
	}
	return out
}

// diffRows returns the differences to the row before. The first row repeats the second's
// difference; a single row has 0.
func diffRows(x *episodeRun, in [][]float64, _ []int64) [][]float64 {
	out := x.channelsLike(in)
	for c, channel := range in {
		if len(channel) < 2 {
			continue
		}
		for i, v := range channel[1:] {
			out[c][i+1] = v - channel[i]
		}
		out[c][0] = out[c][1]
	}
	return out
}

// normRows returns the Euclidean norm of each row.
func normRows(x *episodeRun, in [][]float64, _ []int64) [][]float64 {
	out := x.channels(1)
	out[0] = x.floats(rowCount(in))
	for _, channel := range in {
		for i, v := range channel {
			out[0][i] += v * v
		}
	}
	for i, v := range out[0] {
		out[0][i] = math.Sqrt(v)
	}
	return out
}

// functionNames lists the functions of the language.
func functionNames() []string {
	names := []string{"count", "rising", "falling"}
	names = slices.AppendSeq(names, maps.Keys(aggregates))
	return slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(signalFunctions))))
}

// bindCall binds the call of a function.
func (b *binder) bindCall(s *syntax, name string) (*node, error) {
	if !slices.Contains(functionNames(), name) {
		return nil, syntaxError(s.at, "unknown function %s", name).
			WithHint("Functions: %s.", strings.Join(functionNames(), ", "))
	}
	most := 1
	if name == "rising" || name == "falling" {
		most = 2
	}
	if len(s.args) > most {
		return nil, syntaxError(s.args[most].at, "%s takes at most %d arguments, found %d", name,
			most, len(s.args))
	}
	arg, err := b.bind(s.args[0], true)
	if err != nil {
		return nil, err
	}
	var out *node
	switch {
	case most == 2:
		out, err = b.bindEdge(s, name, arg)
	case name == "count" && arg.kind.hasOccurrences():
		out = countNode(arg)
	case aggregates[name] != nil || name == "count":
		out, err = bindAggregate(s, name, arg)
	default:
		out, err = bindSignalFunction(s, name, arg)
	}
	if out != nil {
		out.at = s.at
	}
	return out, err
}

// countNode counts occurrences.
func countNode(arg *node) *node {
	return &node{
		kind: numberKind,
		eval: func(x *episodeRun) (value, error) {
			v, err := arg.eval(x)
			return value{number: float64(v.countOccurrences(arg.kind))}, err
		},
		reach: func(x *episodeRun) reach {
			if !arg.reachIn(x).canTrue {
				return reach{}
			}
			return reach{lo: 0, hi: math.Inf(1)}
		},
	}
}

// bindAggregate binds a function of all values of a signal. A condition and events are 0 and 1.
func bindAggregate(s *syntax, name string, arg *node) (*node, error) {
	if arg.kind != signalKind && arg.kind != conditionKind && arg.kind != eventsKind {
		return nil, typeError(s, "a signal or a condition", arg)
	}
	out := &node{kind: numberKind, width: 1}
	out.eval = func(x *episodeRun) (value, error) {
		v, err := arg.eval(x)
		if err != nil {
			return value{}, err
		}
		channels := v.channels
		if arg.kind != signalKind {
			channels = x.channels(1)
			channels[0] = x.floats(len(v.rows))
			for i, is := range v.rows {
				if is {
					channels[0][i] = 1
				}
			}
		}
		switch n := rowCount(channels); {
		case name == "count":
			return value{number: float64(n)}, nil
		case n == 0:
			return value{number: math.NaN()}, nil
		}
		return value{number: aggregates[name](channels)}, nil
	}
	if name != "count" && name != "std" && arg.kind == signalKind {
		out.reach = func(x *episodeRun) reach { return aggregateReach(name, arg.reachIn(x)) }
	}
	return out, nil
}

// bindSignalFunction binds a function from a signal to a signal.
func bindSignalFunction(s *syntax, name string, arg *node) (*node, error) {
	if name == "abs" && arg.kind == numberKind {
		return &node{kind: numberKind, width: 1, eval: func(x *episodeRun) (value, error) {
			v, err := arg.eval(x)
			return value{number: math.Abs(v.number)}, err
		}}, nil
	}
	if arg.kind != signalKind {
		return nil, typeError(s, "a signal", arg)
	}
	f := signalFunctions[name]
	out := &node{kind: signalKind, width: f.width(arg.width)}
	out.eval = func(x *episodeRun) (value, error) {
		v, err := arg.eval(x)
		if err != nil {
			return value{}, err
		}
		var times []int64
		if f.needsTimes {
			if times, err = x.times(v.clock); err != nil {
				return value{}, err
			}
		}
		return value{channels: f.compute(x, v.channels, times), clock: v.clock}, nil
	}
	if f.reach != nil {
		out.reach = func(x *episodeRun) reach { return f.reach(arg.reachIn(x), arg.width) }
	}
	return out, nil
}

// bindEdge binds rising and falling. A signal rises at a row if it is above the threshold and the
// row before is not. A condition rises where it becomes true. The first row is no event.
func (b *binder) bindEdge(s *syntax, name string, arg *node) (*node, error) {
	isRising := name == "rising"
	out := &node{kind: eventsKind}
	if len(s.args) == 1 {
		arg = flagCondition(arg)
	}
	if arg.kind == conditionKind && len(s.args) == 1 {
		out.eval = func(x *episodeRun) (value, error) {
			v, err := arg.eval(x)
			rows := x.bools(len(v.rows))
			for i := 1; i < len(rows); i++ {
				rows[i] = v.rows[i] == isRising && v.rows[i-1] != isRising
			}
			return value{rows: rows, clock: v.clock}, err
		}
		return out, nil
	}
	if arg.kind != signalKind || arg.width != 1 {
		return nil, typeError(s, "a signal of one channel or a condition", arg).
			WithHint("Choose a channel, KEY[0], or use norm(KEY).")
	}
	threshold, err := b.bindThreshold(s, arg)
	if err != nil {
		return nil, err
	}
	out.reach = func(x *episodeRun) reach {
		r, t := arg.reachIn(x), threshold.reachIn(x)
		return reach{canTrue: r.hi > t.lo && r.lo <= t.hi, canFalse: true}
	}
	out.eval = func(x *episodeRun) (value, error) {
		v, t, err := x.evalPair(arg, threshold)
		if err != nil {
			return value{}, err
		}
		signal := v.channels[0]
		rows := x.bools(len(signal))
		for i := 1; i < len(rows); i++ {
			before, now := signal[i-1], signal[i]
			if isRising {
				rows[i] = before <= t.number && now > t.number
			} else {
				rows[i] = before > t.number && now <= t.number
			}
		}
		return value{rows: rows, clock: v.clock}, nil
	}
	return out, nil
}

// bindThreshold returns the second argument of rising or falling, or the middle of the signal's
// range in the dataset.
func (b *binder) bindThreshold(s *syntax, signal *node) (*node, error) {
	if len(s.args) == 2 {
		t, err := b.bind(s.args[1], true)
		if err == nil && t.kind != numberKind {
			err = typeError(s, "a number as its threshold", t)
		}
		return t, err
	}
	lo, hi, err := b.source.rangeOf(b.ctx, signal)
	if err != nil {
		return nil, err
	}
	middle := lo + (hi-lo)/2 // NaN if there is no finite value: no event
	return &node{
		kind:  numberKind,
		eval:  func(*episodeRun) (value, error) { return value{number: middle}, nil },
		reach: func(*episodeRun) reach { return reach{lo: middle, hi: middle, nan: middle != middle} },
	}, nil
}
