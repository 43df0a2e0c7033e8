package align

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Causality states which samples of a stream a row may use (align.A21). The zero value restricts
// nothing.
type Causality struct {
	IsCausal bool
	Delay    int64 // ns before the tick at which the stream is evaluated
	MaxAge   int64 // maximum age of a held sample at the tick in ns; 0 = no limit
	// ArrivalShift is added to the arrivals to compare them with ticks, in ns.
	ArrivalShift int64
}

// IsCausal reports whether the observations of a stream use only samples that have arrived. Labels
// (actions, rewards), the task text and the streams in Targets may look ahead.
func (c *Config) IsCausal(key string) bool {
	return c.Causal && key != "task" && !isLabel(key) && !slices.Contains(c.Targets, key)
}

// CausalityOf returns the restriction of a stream. hasLog states whether the recording has the
// arrival times of the stream (HasArrivalTimes). Without them a sample counts as arrived at its
// recorded timestamp, from which the option latency has not been subtracted.
func (c *Config) CausalityOf(f *robocache.Feature, hasLog bool) (Causality, error) {
	k := f.Key
	if !c.IsCausal(k) {
		return Causality{}, nil
	}
	r := Causality{
		IsCausal:     true,
		Delay:        int64(c.Delay.For(k)),
		MaxAge:       c.maxAgeOf(k),
		ArrivalShift: c.arrivalShift(k, hasLog),
	}
	mode, _ := c.Mode(f)
	where := robocache.Where{"stream": k}
	switch {
	case mode == Sum:
		return r, robocache.Misuse("align", where, "mode sum reads samples from after the tick").
			WithHint("If the stream is a label, pass %s.",
				robocache.Option("align", "targets", []string{k}))
	case mode != Previous && mode != Nearest && r.Delay == 0:
		return r, robocache.Misuse("align", where, "mode %s of a causal observation needs a delay, "+
			"so that both neighbors of a time have arrived", mode).
			WithHint("Pass %s, or mode previous.", robocache.Option("align", "delay", k, "50ms"))
	}
	return r, nil
}

// DefaultMaxAge is the maximum age of a held sample if the option max_age is not set.
const DefaultMaxAge = Nanos(1e9)

// maxAgeOf returns the maximum age of a held sample of a stream in ns; 0 = no limit.
func (c *Config) maxAgeOf(key string) int64 {
	if !c.MaxAge.Says(key) {
		return int64(DefaultMaxAge)
	}
	return int64(c.MaxAge.For(key))
}

// arrivalShift returns the time from the arrivals of a stream (arrivalIndex) until its samples can
// be used. Arrivals that are not recorded are the timestamps minus the latency, so that the latency
// is added again.
func (c *Config) arrivalShift(key string, hasLog bool) int64 {
	shift := int64(c.ArrivalDelay.For(key))
	if !hasLog {
		shift += int64(c.Latency[key].Fixed)
	}
	return shift
}

// ArrivalTimes returns when the samples of a stream arrived at the recorder, in the order of the
// samples. The dataset must have these times (HasArrivalTimes). clock is the clock of the stream's
// timestamps (Config.Clock).
func ArrivalTimes(
	ctx context.Context, ds robocache.Dataset, ep int, key, clock string,
) (times []int64, err error) {
	if clock == logClock {
		return TimestampsOf(ctx, ds, ep, key, clock)
	}
	return ds.Capabilities().TimesBy(ctx, ep, key, logClock)
}

// DependsOnArrival reports whether a causal stream can have other values at the ticks than without
// causal, because its samples arrive after their timestamps or are evaluated before the tick.
func (c *Config) DependsOnArrival(ds robocache.Dataset, key string) bool {
	return c.IsCausal(key) && (HasArrivalTimes(ds, key) || c.Delay.For(key) != 0 ||
		c.ArrivalDelay.For(key) != 0 || c.Latency[key] != Latency{})
}

// logClock is the name of the clock of the recorder (robocache.Capabilities.Clocks).
const logClock = "log"

// HasArrivalTimes reports whether a dataset has the arrival times of a stream.
func HasArrivalTimes(ds robocache.Dataset, key string) bool {
	return slices.Contains(robocache.ClocksOf(ds, key), logClock)
}

// Usable returns the first and the last tick at which a stream bounds the extent of a timeline. They
// are its first and last timestamps. A causal stream begins when its first sample can be used, and
// ends when its last sample arrives.
func (c *Causality) Usable(timestamps, arrivals []int64) []int64 {
	if !c.IsCausal || len(timestamps) == 0 {
		return timestamps
	}
	first := max(timestamps[0]+c.Delay, slices.Min(arrivals)+c.ArrivalShift)
	last := slices.Max(arrivals) + c.ArrivalShift
	return []int64{first, max(first, last)}
}

// CheckCausal rejects options of causal alignment that contradict each other.
func (c *Config) CheckCausal() error {
	misuse := func(option, want, got string) error {
		return robocache.Misuse("align", nil, "%s", option).Expected(want, got)
	}
	if !c.Causal && !reflect.ValueOf(c.CausalOptions).IsZero() {
		return misuse("delay, max_age, stale, targets and arrival_delay",
			"causal: true beside them", "another alignment")
	}
	drawnKeys := slices.DeleteFunc(keysOf(c.Latency),
		func(k string) bool { return c.Latency[k].Draw.IsZero() })
	if !c.Causal && len(drawnKeys) > 0 {
		return misuse("a drawn latency", "causal: true beside it", "another alignment")
	}
	for _, k := range slices.Concat(drawnKeys, keysOf(c.Delay.Keys), keysOf(c.MaxAge.Keys),
		keysOf(c.Stale.Keys), keysOf(c.ArrivalDelay.Keys)) {
		if c.Causal && !c.IsCausal(k) {
			return robocache.Misuse("align", robocache.Where{"stream": k},
				"a causal option names a label, which may look ahead").
				WithHint("Leave it out of delay, max_age, stale, arrival_delay and latency.")
		}
	}
	checkDurations := func(option string, p PerKey[Nanos]) error {
		for _, n := range append(slices.Collect(maps.Values(p.Keys)), p.All) {
			if n < 0 || n >= maxTime/4 {
				return misuse(option, "0 or more ns", strconv.FormatInt(int64(n), 10))
			}
		}
		return nil
	}
	for _, s := range append(slices.Collect(maps.Values(c.Stale.Keys)), c.Stale.All) {
		if s != "" && s != StaleMask && s != StaleError {
			return misuse("stale", `"mask" or "error"`, strconv.Quote(string(s)))
		}
	}
	return cmp.Or(checkDurations("delay", c.Delay), checkDurations("max_age", c.MaxAge),
		checkDurations("arrival_delay", c.ArrivalDelay))
}

// Arrivals holds when each sample of a stream arrived, in the order of the samples' timestamps. If
// some sample arrived before one with a smaller timestamp, a second half of the same length
// follows. Its element k is the time by which sample k or one behind it had arrived. These times
// are sorted, so that they can be searched.
type Arrivals []int64

// NewArrivals returns the arrivals of samples. It keeps times.
func NewArrivals(times []int64) Arrivals {
	if slices.IsSorted(times) {
		return times
	}
	n := len(times)
	out := append(slices.Clone(times), times...)
	sorted := out[n:]
	for k := n - 2; k >= 0; k-- {
		sorted[k] = min(sorted[k], sorted[k+1])
	}
	return out
}

// sortedPart returns the part of the arrivals of n samples that is sorted.
func (a Arrivals) sortedPart(n int) []int64 { return a[len(a)-n:] }

// newest returns the number of samples up to the newest one that had arrived at now, including late
// samples between them. n is the number of all samples.
func (a Arrivals) newest(n int, now int64) int {
	count, _ := slices.BinarySearch(a.sortedPart(n), now+1)
	return count
}

// FillCausal is Fill for a causal stream (align.A21). Row i is evaluated at targets[i], minus the
// delay, from the samples that had arrived at nows[i]. Both are on the clock of the timestamps.
func (o *Options) FillCausal(
	p *kernel.Plan, stamps []int64, arrivals Arrivals, targets, nows []int64,
) error {
	f := causalFinder{Options: o, stamps: stamps, arrivals: arrivals}
	p.Mode, p.Sources = o.Mode, len(stamps)
	for i, target := range targets {
		if err := f.fillRow(p, i, target, nows[i]-o.ArrivalShift); err != nil {
			return inStream(robocache.At(err, robocache.Where{"row": i}), o.Stream)
		}
	}
	return nil
}

// causalFinder fills the rows of one causal plan.
type causalFinder struct {
	*Options
	stamps   []int64
	arrivals Arrivals
	at       [1]int64 // the evaluated time of the row
	// scratch for samples that arrived out of order
	arrived []int64 // timestamps
	indices []int32
}

// fillRow decides row i from the samples that had arrived at now.
func (f *causalFinder) fillRow(p *kernel.Plan, i int, target, now int64) error {
	row := kernel.Plan{
		Kind:   p.Kind[i : i+1],
		Left:   p.Left[i : i+1],
		Right:  p.Right[i : i+1],
		Weight: p.Weight[i : i+1],
		Valid:  p.Valid[i : i+1],
	}
	f.at[0] = target - f.Delay
	stamps, base, indices := f.arrivedNear(f.at[0], now)
	if err := f.fillArrived(&row, stamps); err != nil {
		return err
	}
	switch {
	case row.Kind[0] == kernel.Zero:
	case indices == nil:
		row.Left[0] += base
		row.Right[0] += base
	case row.Kind[0] == kernel.Window:
		return f.placeWindow(&row, indices)
	default:
		row.Left[0], row.Right[0] = indices[row.Left[0]], indices[row.Right[0]]
	}
	return nil
}

// placeWindow replaces the range of a row of mode mean by the range of the samples at indices. A
// plan has no form for a window in which samples are left out.
func (f *causalFinder) placeWindow(row *kernel.Plan, indices []int32) error {
	for k := row.Left[0] + 1; k < row.Right[0]; k++ {
		if indices[k] != indices[k-1]+1 {
			return robocache.Unsupported("align", nil,
				"mode mean of samples that arrived out of order").
				WithHint("Pass %s.", robocache.Option("align", "modes", f.Stream, "previous"))
		}
	}
	row.Right[0] = indices[row.Right[0]-1] + 1
	row.Left[0] = indices[row.Left[0]]
	return nil
}

// fillArrived decides a row from samples that have all arrived. A stream that holds its samples has
// no next sample at the tick, so that the newest one counts up to its maximum age.
func (f *causalFinder) fillArrived(row *kernel.Plan, stamps []int64) error {
	if !f.holdsSamples() {
		rule := f.kernelRule(stamps)
		return row.Fill(stamps, f.at[:], &rule)
	}
	rule := kernel.Rule{Mode: f.Mode, Before: f.Before, After: f.After}
	if f.Hold {
		rule.Mode = Previous
	}
	if err := row.Fill(stamps, f.at[:], &rule); err != nil {
		return err
	}
	hasSample := row.Kind[0] == kernel.Copy
	if hasSample && !f.Hold {
		elapsed := f.at[0] - stamps[row.Left[0]]
		age := elapsed + f.Delay // at the tick, which is later than f.at by the delay
		hasSample = (elapsed >= 0 || f.Mode == Nearest) &&
			(f.MaxGap == 0 || max(elapsed, -elapsed) <= f.MaxGap) &&
			(f.MaxAge == 0 || age <= f.MaxAge)
	}
	row.Valid[0] = 0
	switch {
	case hasSample:
		row.Valid[0] = 1
	case f.Edge == EdgeMask:
		row.Kind[0], row.Left[0], row.Right[0] = kernel.Zero, 0, 0
	case f.Edge == EdgeError:
		return robocache.Malformed("align", nil, "no sample has arrived that is young enough").
			WithHint("Set %s to mask such rows, or raise max_age.",
				robocache.Option("align", "stale", "mask"))
	}
	return nil
}

// holdsSamples reports whether the mode holds the newest sample until the next one arrives.
func (o *Options) holdsSamples() bool {
	return o.Hold || o.Mode == Previous || o.Mode == Nearest
}

// heldLonger returns how old the newest usable sample of a causal stream can be, beyond one period.
// It is the median time from a timestamp until the sample can be used, minus the delay. max_gap must
// allow it, or else a stream without gaps would have some. Streams that do not hold have 0.
func (o *Options) heldLonger(stamps, arrivals []int64) int64 {
	if !o.IsCausal || !o.holdsSamples() || len(stamps) == 0 {
		return 0
	}
	lags := make([]int64, len(stamps))
	for k, s := range stamps {
		lags[k] = arrivals[k] + o.ArrivalShift - s
	}
	slices.Sort(lags)
	return max(lags[len(lags)/2]-o.Delay, 0)
}

// arrivedNear returns the timestamps of samples around a time at. All of them had arrived at now,
// and they are enough for every mode and edge (align.A2, A4, A8). If indices is nil, they are
// consecutive samples, of which base is the first. Otherwise they are the samples at indices.
func (f *causalFinder) arrivedNear(
	at, now int64,
) (stamps []int64, base int32, indices []int32) {
	n := f.arrivals.newest(len(f.stamps), now)
	from, stamps := Near(f.stamps[:n], at, at, f.Before, f.After)
	arrivedInOrder := len(f.arrivals) == len(f.stamps)
	if arrivedInOrder {
		return stamps, int32(from), nil
	}
	isLate := func(k int) bool { return f.arrivals[k] > now }
	to := from + len(stamps)
	if !slices.ContainsFunc(f.arrivals[from:to], func(t int64) bool { return t > now }) {
		return stamps, int32(from), nil
	}
	// Near counted the late samples too. Extend the range until two distinct timestamps of arrived
	// samples are on each side. The third one ends the search, so that all duplicates of the second
	// are inside.
	first := at - f.Before
	for distinct := 0; from > 0 && distinct < 3; from-- {
		if k := from - 1; !isLate(k) && f.stamps[k] < first {
			first = f.stamps[k]
			distinct++
		}
	}
	last := at + f.After
	for distinct := 0; to < n && distinct < 3; to++ {
		if !isLate(to) && f.stamps[to] > last {
			last = f.stamps[to]
			distinct++
		}
	}
	f.arrived, f.indices = f.arrived[:0], f.indices[:0]
	for k := from; k < to; k++ {
		if !isLate(k) {
			f.arrived, f.indices = append(f.arrived, f.stamps[k]), append(f.indices, int32(k))
		}
	}
	return f.arrived, 0, f.indices
}

// Near returns the part of timestamps that determines the values at times from first to last, and
// the position of its first element. The caller then searches a second of timestamps and not an
// hour of them. The part covers the times from first - before to last + after, and two distinct
// timestamps on each side of them. That is enough for every mode and edge (align.A2, A4, A8).
func Near(timestamps []int64, first, last, before, after int64) (from int, near []int64) {
	if len(timestamps) < 64 { // so few timestamps are searched as quickly without this
		return 0, timestamps
	}
	from, _ = slices.BinarySearch(timestamps, first-before)
	to, _ := slices.BinarySearch(timestamps, last+after+1)
	for range 2 { // one more distinct timestamp, with its duplicates, on each side
		if from > 0 {
			from, _ = slices.BinarySearch(timestamps[:from], timestamps[from-1])
		}
		if to < len(timestamps) {
			more, _ := slices.BinarySearch(timestamps[to:], timestamps[to]+1)
			to += more
		}
	}
	return from, timestamps[from:to]
}
