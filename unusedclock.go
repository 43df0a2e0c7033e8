package robocache

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// UnusedClock is a time column, by its name, from which the reader does not take the timestamps
// of the rows. A reader records it with Info.AddUnusedClock.
type UnusedClock struct {
	Stream string `json:"stream"`           // name in the dataset, such as obs/timestamp
	Where  Where  `json:"where,omitempty"`  // the first episode that has the fault, and its file
	Reason string `json:"reason"`           // predicate of Stream: "has 98 values for 99 rows"
	Advice string `json:"advice,omitempty"` // imperative sentence; "": to write the column again
	// Count is the number of examined episodes in which this column has a fault.
	Count int64 `json:"count"`
	// Sound reports that the values are timestamps, and that the reader does not take them by
	// itself.
	Sound bool `json:"sound,omitempty"`
}

// ClockUnusable is the code of the finding of an UnusedClock.
const ClockUnusable = "clock-unusable"

// String returns a clause: "obs/timestamp has 98 values for 99 rows in episode 3".
func (c *UnusedClock) String() string {
	s := c.Stream + " " + c.Reason
	if e, ok := c.Where["episode"]; ok {
		s += fmt.Sprintf(" in episode %v", e)
	}
	if c.Count > 1 {
		s += fmt.Sprintf(", and cannot be used in %d episodes", c.Count)
	}
	return s
}

// hint returns the advice, or by default the advice to write the column again.
func (c *UnusedClock) hint() string {
	if c.Advice != "" {
		return c.Advice
	}
	return "Write " + c.Stream + " again with one number for each row that is finite and ascends"
}

// AddUnusedClock records a clock that cannot be used, with a finding. Faults of one column in
// several episodes make one record, which describes the first fault and counts the episodes.
func (i *Info) AddUnusedClock(c UnusedClock) {
	at := slices.IndexFunc(i.UnusedClocks, func(o UnusedClock) bool { return o.Stream == c.Stream })
	if at >= 0 {
		if i.UnusedClocks[at].Sound || c.Sound {
			return
		}
		i.UnusedClocks[at].Count++
	} else {
		c.Count = max(c.Count, 1)
		i.UnusedClocks = append(i.UnusedClocks, c)
		at = len(i.UnusedClocks) - 1
	}
	clock := &i.UnusedClocks[at]
	where := Where{"stream": clock.Stream}
	for k, v := range clock.Where {
		where[k] = v
	}
	f := Finding{
		Severity: SeverityWarning, Code: ClockUnusable,
		Where: where, Message: clock.String(), Count: clock.Count,
		Hint: clock.hint() + ", or state the rate of the rows with " + Option("rows_hz"),
	}
	if clock.Sound {
		f.Severity = SeverityInfo
	}
	same := func(o Finding) bool {
		return o.Code == ClockUnusable && o.Where["stream"] == clock.Stream
	}
	if k := slices.IndexFunc(i.Findings, same); k >= 0 {
		i.Findings[k] = f
		return
	}
	i.Findings = append(i.Findings, f)
}

// clocksNotUsed describes the clocks of an Info that are not used. Its fields are empty if there
// is none.
type clocksNotUsed struct {
	state  string // "the clock of the rows cannot be used"
	faults string // "obs/timestamp has 98 values for 99 rows in episode 3"
	hint   string // what to do about the first of them
}

func (i *Info) clocksNotUsed() (c clocksNotUsed) {
	var faults []string
	for k := range i.UnusedClocks {
		faults = append(faults, i.UnusedClocks[k].String())
	}
	if len(faults) == 0 {
		return c
	}
	first := &i.UnusedClocks[0]
	c.faults, c.hint = strings.Join(faults, "; "), first.hint()
	c.state = "the clock of the rows cannot be used"
	if first.Sound {
		c.state = "the clock of the rows is not used"
	}
	return c
}

// DescribeUnusedClocks returns the unused time columns with their reasons as one clause, "" if
// there is none.
func (i *Info) DescribeUnusedClocks() string { return i.clocksNotUsed().faults }

// unusedClockError is ErrNoClock of rows that have a clock.
type unusedClockError struct{ state string }

// Error returns the text of the error.
func (e unusedClockError) Error() string { return e.state + ", and nothing says their rate" }

// Is reports whether target is ErrNoClock.
func (unusedClockError) Is(target error) bool { return target == ErrNoClock }

// NoClock returns the error of the function NoClock. If the rows have a clock that is not used, the
// error names the clock, the reason and a remedy.
func (i *Info) NoClock(op string, where Where, why string) *Error {
	c := i.clocksNotUsed()
	if c.faults == "" {
		return NoClock(op, where, why)
	}
	return Misuse(op, where, "%s", c.faults).WithCause(unusedClockError{c.state}).
		WithHint("%s, or state the rate of the rows: %s", c.hint, Option("rows_hz", 10))
}

// ClockFault returns why the values of an episode are no timestamps, as a predicate: "is NaN at
// row 5". It is empty if they are. Values that differ nowhere are no timestamps of more than one
// row.
func ClockFault(values []float64) string {
	for k, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("is %v at row %d", v, k)
		}
		if k > 0 && v < values[k-1] {
			before := plainNumber(values[k-1])
			return fmt.Sprintf("steps back from %s to %s at row %d", before, plainNumber(v), k)
		}
	}
	if IsConstantClock(values) {
		return fmt.Sprintf("is %s in all %d rows", plainNumber(values[0]), len(values))
	}
	return ""
}

// plainNumber writes a number without an exponent.
func plainNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// IsConstantClock reports whether the values of several rows are all the same number.
func IsConstantClock(values []float64) bool {
	differs := func(v float64) bool { return v != values[0] }
	return len(values) > 1 && !slices.ContainsFunc(values, differs)
}

// ClockLengthFault returns the fault of a time column with a value too many or too few.
func ClockLengthFault(values, rows int64) string {
	return fmt.Sprintf("has %s for %s", countNoun(values, "value"), countNoun(rows, "row"))
}

func countNoun(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// clockNames are the names that recorders give to the timestamps of rows.
var clockNames = []string{
	"timestamp", "timestamps", "time_stamp", "time", "times", "stamp", "stamps", "t",
}

// clockParents are the groups in which a name of clockNames means the clock of the rows.
var clockParents = []string{"", "obs", "observation", "observations"}

// NamesClock reports whether a column is a time column by its name: timestamp, t, obs/timestamp,
// observation.timestamp, timestamp_ns.
func NamesClock(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), ".", "/")
	parent, base := "", name
	if k := strings.LastIndexByte(name, '/'); k >= 0 {
		parent, base = name[:k], name[k+1:]
	}
	for unit := range TimeUnits {
		base = strings.TrimSuffix(base, "_"+unit)
	}
	return slices.Contains(clockNames, base) && slices.Contains(clockParents, parent)
}

// NamesClockWeakly reports whether a name that NamesClock accepts has other meanings too, such
// as t for a translation. Only numbers of one value a row are then a clock.
func NamesClockWeakly(name string) bool {
	return name == "t" || strings.HasSuffix(name, "/t") || strings.HasSuffix(name, ".t")
}
