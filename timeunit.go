package robocache

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// TimeUnits are the units of timestamps, in nanoseconds.
var TimeUnits = map[string]int64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// unitNames lists TimeUnits, the longest first.
var unitNames = []string{"s", "ms", "us", "ns"}

// Plausible median steps between rows, in seconds: 1 ms to 10 s, and from 1 µs if the unit is s.
// Rows faster than 1 kHz are not assumed for a smaller unit.
const (
	shortestStep   = 1e-6
	usualStep      = 1e-3
	longestRowStep = 10
)

// The seconds since 1970 that mark times of the Unix epoch: September 2001 to 2099.
const (
	epochFrom = 1e9
	epochTo   = 4.1e9
)

// UnitGuess is the result of InferTimeUnit.
type UnitGuess struct {
	Unit string  // of TimeUnits; "" if the values do not determine it
	Step float64 // median step between rows, in that unit as stored; 0 if there is none
	Why  string  // reason of the decision, for a finding
	Rows bool    // the values are whole numbers that count the rows
	// Coarse reports that the values are times since 1970 that were stored as float32, which rounds
	// them to multiples of 128 s. InferTimeUnit then returns an error whatever the unit is.
	Coarse bool
}

// InferTimeUnit finds the unit of ascending timestamps whose format states none. rate is the
// nominal rate of the rows if it is known, usual the unit that the format documents as its default,
// or "".
//
// The rules, the first that decides:
//
//  1. Values between 2001 and 2099 in a unit, with steps below 100 s, are times of the Unix epoch.
//  2. If the rate is known, the unit is the one whose median step is within a factor 3 of its period.
//  3. A median step of 1 ms to 10 s (of seconds: 1 µs to 10 s) is plausible. One plausible unit is the
//     result; of several it is usual, if that gives at least one row per second.
//
// Anything else is ErrMisuse with a hint that names the option timestamp_unit.
func InferTimeUnit(values []float64, usual string, rate Rate) (UnitGuess, error) {
	var g UnitGuess
	var steps []float64
	g.Rows = len(values) > 2
	for i := 1; i < len(values); i++ {
		d := values[i] - values[i-1]
		if d > 0 {
			steps = append(steps, d)
		}
		g.Rows = g.Rows && d == 1 && values[0] == math.Trunc(values[0]) &&
			math.Abs(values[0]) < epochFrom
	}
	if len(steps) > 0 {
		slices.Sort(steps)
		g.Step = steps[len(steps)/2]
	}
	seconds := func(unit string, v float64) float64 { return v * float64(TimeUnits[unit]) / 1e9 }
	if u := coarseEpoch(values); u != "" {
		g.Coarse = true
		return g, coarseError(u, values)
	}
	if len(values) > 0 {
		for _, u := range unitNames {
			t := seconds(u, values[0])
			if t >= epochFrom && t <= epochTo && seconds(u, g.Step) < 100 {
				g.Unit, g.Why = u, "as "+u+" they are times since 1970"
				return g, nil
			}
		}
	}
	if g.Step == 0 {
		return g, nil
	}
	if !rate.Zero() {
		for _, u := range unitNames {
			if r := seconds(u, g.Step) * rate.Float(); r > 1./3 && r < 3 {
				g.Unit = u
				g.Why = fmt.Sprintf("as %s the median step %g fits %s Hz", u, g.Step, rate)
				return g, nil
			}
		}
	}
	var plausible []string
	for i, u := range unitNames {
		least := usualStep
		if i == 0 {
			least = shortestStep
		}
		if t := seconds(u, g.Step) * (1 + 1e-9); t >= least && t < longestRowStep {
			plausible = append(plausible, u)
		}
	}
	switch {
	case len(plausible) == 1:
		g.Unit = plausible[0]
	case slices.Contains(plausible, usual) && seconds(usual, g.Step) <= 1:
		g.Unit = usual
	default:
		return g, unitError(g, plausible)
	}
	g.Why = fmt.Sprintf("as %s the median step is %.4g ms", g.Unit, seconds(g.Unit, g.Step)*1e3)
	return g, nil
}

// coarseEpoch returns the unit of times since 1970 that float32 has rounded. It returns "" for
// other values. Distinct times rounded to float32 are at least 64 s apart.
func coarseEpoch(values []float64) string {
	if len(values) < 2 {
		return ""
	}
	for _, v := range values {
		if float64(float32(v)) != v {
			return ""
		}
	}
	for _, u := range unitNames {
		scale := float64(TimeUnits[u]) / 1e9
		if t := values[0] * scale; t < epochFrom || t > epochTo {
			continue
		}
		for i := 1; i < len(values); i++ {
			if d := (values[i] - values[i-1]) * scale; d != 0 && d < 60 {
				return ""
			}
		}
		return u
	}
	return ""
}

// coarseError is the error of times since 1970 that were stored as float32.
func coarseError(unit string, values []float64) error {
	same := 0
	for i := 1; i < len(values); i++ {
		if values[i] == values[i-1] {
			same++
		}
	}
	step := float64(math.Nextafter32(float32(values[0]), math.MaxFloat32)) - values[0]
	return Misuse(
		"",
		nil,
		"%s",
		fmt.Sprintf("the timestamps are times since 1970 rounded to float32: the next one is %g "+
			"%s later, "+
			"and %d of %d equal the one before", step, unit, same, len(values)),
	).
		WithCause(ErrNoClock).
		WithHint(
			"Write them as float64 or as int64 nanoseconds, or pass the rate of the rows: %s",
			Option("rows_hz", 10),
		)
}

// unitError is the error of timestamps whose unit is not determined.
func unitError(g UnitGuess, plausible []string) error {
	e := Misuse("", nil, "the unit of the timestamps is unknown: their median step is %g", g.Step).
		WithCause(ErrNoClock).
		WithHint("Pass %s, or s, us or ns", Option("options", "timestamp_unit", "ms"))
	if len(plausible) > 1 {
		e.Msg += ", which may be " + strings.Join(plausible, " or ")
	}
	if g.Rows {
		e.Msg += ", or the values are row numbers"
		e.Hint += "; or the rate of the rows by " + Option("rows_hz")
	}
	return e
}

// UnitFinding returns the finding of timestamps whose unit was inferred, or is not determined
// (err). It returns nil if the unit is the usual one of the format.
func UnitFinding(g UnitGuess, err error, usual string, where Where) *Finding {
	f := &Finding{Severity: SeverityInfo, Code: "timestamp-unit", Where: where}
	if err != nil {
		f.Severity, f.Message = SeverityWarning, err.Error()
		return f
	}
	if g.Unit == "" || g.Unit == usual {
		return nil
	}
	f.Message = fmt.Sprintf(
		"nothing states the unit of the timestamps: %s is taken, %s",
		g.Unit,
		g.Why,
	)
	f.Hint = "Pass " + Option("options", "timestamp_unit", g.Unit) + " to state it, or another unit"
	return f
}
