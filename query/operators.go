package query

import (
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// comparisons are the comparisons of numbers. A comparison with NaN is false.
var comparisons = map[string]func(a, b float64) bool{
	"<":  func(a, b float64) bool { return a < b },
	"<=": func(a, b float64) bool { return a <= b },
	">":  func(a, b float64) bool { return a > b },
	">=": func(a, b float64) bool { return a >= b },
	"==": func(a, b float64) bool { return a == b },
	"!=": func(a, b float64) bool { return a < b || a > b },
}

// arithmetic are the operations with numbers.
var arithmetic = map[string]func(a, b float64) float64{
	"+":          func(a, b float64) float64 { return a + b },
	"-":          func(a, b float64) float64 { return a - b },
	"*":          func(a, b float64) float64 { return a * b },
	"/":          func(a, b float64) float64 { return a / b },
	negateSyntax: func(a, _ float64) float64 { return -a },
}

// typeError reports that an operator does not apply to its operands.
func typeError(s *syntax, expected string, found *node) *robocache.Error {
	return syntaxError(s.at, "%q expects %s, found %s", s.text, expected, kindNames[found.kind])
}

// bindArithmetic binds an operation with numbers or signals.
func (b *binder) bindArithmetic(s *syntax, args []*node) (*node, error) {
	compute := arithmetic[s.name]
	out := &node{kind: numberKind, width: 1}
	for i, arg := range args {
		var err error
		if arg, err = b.signalOf(arg); err != nil {
			return nil, err
		}
		args[i] = arg
		if arg.kind != numberKind && arg.kind != signalKind {
			return nil, typeError(s, "numbers or signals", arg)
		}
		if arg.isOrdinal && s.name != negateSyntax {
			return nil, syntaxError(arg.at, "the number of an episode is no quantity").
				WithHint("Compare it, such as index < 3.")
		}
		if arg.kind == signalKind {
			out.kind = signalKind
		}
		out.width = max(out.width, arg.width)
	}
	left, right := args[0], args[len(args)-1]
	if len(args) == 2 && left.width > 1 && right.width > 1 && left.width != right.width {
		return nil, syntaxError(s.at, "%q of signals with %d and %d channels", s.text, left.width,
			right.width)
	}
	out.isOrdinal = left.isOrdinal
	out.reach = func(x *episodeRun) reach {
		return arithmeticReach(s.name, left.reachIn(x), right.reachIn(x))
	}
	out.eval = func(x *episodeRun) (value, error) {
		l, r, err := x.evalPair(left, right)
		if err != nil {
			return value{}, err
		}
		if out.kind == numberKind {
			return value{number: compute(l.number, r.number)}, nil
		}
		v := value{clock: l.clock, channels: x.channels(out.width)}
		n := max(rowCount(l.channels), rowCount(r.channels))
		for c := range v.channels {
			v.channels[c] = x.floats(n)
			a, z := l.channelAt(c), r.channelAt(c)
			for i := range v.channels[c] {
				v.channels[c][i] = compute(numberAtRow(a, l.number, i), numberAtRow(z, r.number, i))
			}
		}
		return v, nil
	}
	return out, nil
}

// channelAt returns a channel of a signal. A signal of one channel has it everywhere; a number has
// none.
func (v *value) channelAt(c int) []float64 {
	switch {
	case len(v.channels) == 0:
		return nil
	case len(v.channels) == 1:
		return v.channels[0]
	}
	return v.channels[c]
}

// rowCount returns the number of rows of channels.
func rowCount(channels [][]float64) int {
	if len(channels) == 0 {
		return 0
	}
	return len(channels[0])
}

// numberAtRow returns an element of a channel, or number if there is no channel.
func numberAtRow(channel []float64, number float64, i int) float64 {
	if channel == nil {
		return number
	}
	return channel[i]
}

// bindComparison binds a comparison of numbers, signals or texts.
func (b *binder) bindComparison(s *syntax, left, right *node) (*node, error) {
	isText := func(n *node) bool { return n.kind == textsKind || n.kind == rowTextKind }
	if isText(left) && isText(right) {
		return bindTextComparison(s, left, right)
	}
	var err error
	if left, err = b.signalOf(left); err != nil {
		return nil, err
	}
	if right, err = b.signalOf(right); err != nil {
		return nil, err
	}
	for _, n := range []*node{left, right} {
		if n.kind != numberKind && n.kind != signalKind {
			return nil, typeError(s, "two numbers or signals, or two texts", n)
		}
		if n.width > 1 {
			return nil, syntaxError(s.at, "%q compares a signal of %d channels", s.text, n.width).
				WithHint("Choose a channel, KEY[0], or use norm(KEY), max(KEY) or min(KEY).")
		}
	}
	compare := comparisons[s.name]
	out := &node{kind: truthKind}
	if left.kind == signalKind || right.kind == signalKind {
		out.kind = conditionKind
	}
	out.reach = func(x *episodeRun) reach {
		return comparisonReach(s.name, left.reachIn(x), right.reachIn(x))
	}
	out.eval = func(x *episodeRun) (value, error) {
		l, r, err := x.evalPair(left, right)
		if err != nil {
			return value{}, err
		}
		if out.kind == truthKind {
			return value{truth: compare(l.number, r.number)}, nil
		}
		a, z := l.channelAt(0), r.channelAt(0)
		rows := x.bools(max(len(a), len(z)))
		for i := range rows {
			rows[i] = compare(numberAtRow(a, l.number, i), numberAtRow(z, r.number, i))
		}
		return value{rows: rows, clock: l.clock}, nil
	}
	return out, nil
}

// bindTextComparison binds a comparison of texts by == or !=. Texts of an episode are equal if they
// have one in common.
func bindTextComparison(s *syntax, left, right *node) (*node, error) {
	if s.name != "==" && s.name != "!=" {
		return nil, typeError(s, "numbers: texts are compared by == and !=,", left)
	}
	if left.kind != rowTextKind {
		left, right = right, left
	}
	if right.kind == rowTextKind {
		return nil, typeError(s, "a text in quotes", right)
	}
	out := &node{kind: truthKind}
	if left.kind == rowTextKind {
		out.kind = conditionKind
	}
	out.eval = func(x *episodeRun) (value, error) {
		l, err := left.eval(x)
		if err != nil {
			return value{}, err
		}
		r, err := right.eval(x)
		if err != nil {
			return value{}, err
		}
		if out.kind == conditionKind {
			rows := x.bools(len(l.texts))
			for i, text := range l.texts {
				rows[i] = slices.Contains(r.texts, text) == (s.name == "==")
			}
			return value{rows: rows, clock: l.clock}, nil
		}
		isCommon := func(text string) bool { return slices.Contains(r.texts, text) }
		return value{truth: slices.ContainsFunc(l.texts, isCommon) == (s.name == "==")}, nil
	}
	return out, nil
}

// flagCondition returns a signal of booleans as a condition, and other nodes as they are.
func flagCondition(n *node) *node {
	if !n.isFlag {
		return n
	}
	return &node{kind: conditionKind, at: n.at, eval: func(x *episodeRun) (value, error) {
		v, err := n.eval(x)
		if err != nil {
			return value{}, err
		}
		rows := x.bools(rowCount(v.channels))
		for i := range rows {
			rows[i] = v.channels[0][i] > 0.5
		}
		return value{rows: rows, clock: v.clock}, nil
	}}
}

// bindLogic binds and and or.
func bindLogic(s *syntax, left, right *node) (*node, error) {
	left, right = flagCondition(left), flagCondition(right)
	for _, n := range []*node{left, right} {
		if n.kind != truthKind && n.kind != conditionKind && n.kind != eventsKind {
			return nil, typeError(s, "conditions", n)
		}
	}
	isOr := s.name == "or"
	out := &node{kind: conditionKind}
	hasEvents, bothEvents := left.kind == eventsKind || right.kind == eventsKind,
		left.kind == right.kind && left.kind == eventsKind
	switch {
	case left.kind == truthKind && right.kind == truthKind:
		out.kind = truthKind
	case bothEvents || hasEvents && !isOr:
		out.kind = eventsKind
	}
	out.reach = func(x *episodeRun) reach {
		l, r := left.reachIn(x), right.reachIn(x)
		if isOr {
			return reach{canTrue: l.canTrue || r.canTrue, canFalse: l.canFalse && r.canFalse}
		}
		return reach{canTrue: l.canTrue && r.canTrue, canFalse: l.canFalse || r.canFalse}
	}
	out.eval = func(x *episodeRun) (value, error) {
		if out.kind == truthKind {
			l, err := left.eval(x)
			if err != nil || l.truth == isOr {
				return l, err
			}
			return right.eval(x)
		}
		return x.evalRows(left, right, func(a, b bool) bool {
			return isOr && (a || b) || a && b
		})
	}
	return out, nil
}

// bindNot binds not.
func bindNot(s *syntax, n *node) (*node, error) {
	n = flagCondition(n)
	if n.kind != truthKind && n.kind != conditionKind && n.kind != eventsKind {
		return nil, typeError(s, "a condition", n)
	}
	out := &node{kind: conditionKind}
	if n.kind == truthKind {
		out.kind = truthKind
	}
	out.reach = func(x *episodeRun) reach {
		r := n.reachIn(x)
		return reach{canTrue: r.canFalse, canFalse: r.canTrue}
	}
	out.eval = func(x *episodeRun) (value, error) {
		v, err := n.eval(x)
		v.truth = !v.truth
		rows := x.bools(len(v.rows))
		for i := range rows {
			rows[i] = !v.rows[i]
		}
		v.rows = rows
		return v, err
	}
	return out, nil
}

// bindHeld binds C for DURATION: the occurrences that last at least so long.
func bindHeld(s *syntax, n *node) (*node, error) {
	n = flagCondition(n)
	if n.kind != conditionKind && n.kind != rangesKind {
		return nil, typeError(s, "a condition or ranges", n)
	}
	least := nanoseconds(s.value) - slackNS
	out := &node{kind: n.kind, reach: func(x *episodeRun) reach {
		return reach{canTrue: n.reachIn(x).canTrue, canFalse: true}
	}}
	out.eval = func(x *episodeRun) (value, error) {
		v, err := n.eval(x)
		if err != nil {
			return value{}, err
		}
		spans := v.spans(n.kind)
		if len(spans) == 0 {
			return v, nil
		}
		times, err := x.times(v.clock)
		if err != nil {
			return value{}, err
		}
		lasts := func(s span) bool { return times[s.to-1]-times[s.from] >= least }
		spans = slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return !lasts(s) })
		if n.kind == rangesKind {
			return value{ranges: spans, clock: v.clock}, nil
		}
		rows := x.bools(len(v.rows))
		for _, s := range spans {
			for i := s.from; i < s.to; i++ {
				rows[i] = true
			}
		}
		return value{rows: rows, clock: v.clock}, nil
	}
	return out, nil
}

// bindWhile binds A while B: what of A is at rows for which B is true. Ranges are kept if B is true
// for all their rows.
func bindWhile(s *syntax, left, right *node) (*node, error) {
	left, right = flagCondition(left), flagCondition(right)
	if !left.kind.hasOccurrences() {
		return nil, typeError(s, "events, a condition or ranges at its left", left)
	}
	if right.kind != conditionKind && right.kind != truthKind {
		return nil, typeError(s, "a condition at its right", right)
	}
	out := &node{kind: left.kind, reach: bothReach(left, right)}
	out.eval = func(x *episodeRun) (value, error) {
		if left.kind != rangesKind {
			return x.evalRows(left, right, func(a, b bool) bool { return a && b })
		}
		v, holds, err := x.evalPair(left, right)
		if err != nil {
			return value{}, err
		}
		fails := func(s span) bool {
			if right.kind == truthKind {
				return !holds.truth
			}
			return slices.Contains(holds.rows[s.from:s.to], false)
		}
		return value{ranges: slices.DeleteFunc(slices.Clone(v.ranges), fails), clock: v.clock}, nil
	}
	return out, nil
}

// bindThen binds A then B within DURATION: for each occurrence of A, the range up to the end of the
// next occurrence of B that starts after A's last row, at most so much later.
func bindThen(s *syntax, left, right *node) (*node, error) {
	left, right = flagCondition(left), flagCondition(right)
	for _, n := range []*node{left, right} {
		if !n.kind.hasOccurrences() {
			return nil, typeError(s, "events, conditions or ranges", n)
		}
	}
	limit := int64(math.MaxInt64)
	if s.value >= 0 {
		limit = nanoseconds(s.value) + slackNS
	}
	out := &node{kind: rangesKind, reach: bothReach(left, right)}
	out.eval = func(x *episodeRun) (value, error) {
		l, err := left.eval(x)
		if err != nil {
			return value{}, err
		}
		r, err := right.eval(x)
		if err != nil {
			return value{}, err
		}
		if err := x.unifyClocks(&l, left.kind, &r, right.kind); err != nil {
			return value{}, err
		}
		first, next := l.spans(left.kind), r.spans(right.kind)
		slices.SortStableFunc(next, func(a, b span) int { return a.from - b.from })
		v := value{clock: l.clock}
		var times []int64
		for _, a := range first {
			k, _ := slices.BinarySearchFunc(next, a.to, func(s span, row int) int {
				return s.from - row
			})
			if k == len(next) {
				continue
			}
			if s.value >= 0 && times == nil {
				if times, err = x.times(l.clock); err != nil {
					return value{}, err
				}
			}
			if times == nil || times[next[k].from]-times[a.to-1] <= limit {
				v.ranges = append(v.ranges, span{a.from, next[k].to})
			}
		}
		return v, nil
	}
	return out, nil
}

// bothReach is the reach of a value that needs occurrences of both nodes.
func bothReach(left, right *node) func(x *episodeRun) reach {
	return func(x *episodeRun) reach {
		return reach{
			canTrue: left.reachIn(x).canTrue && right.reachIn(x).canTrue, canFalse: true,
		}
	}
}
