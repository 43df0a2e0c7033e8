package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Spread holds the figures of the repeats, with minimum, median and maximum.
type Spread struct {
	Min    float64   `json:"min"`
	Median float64   `json:"median"`
	Max    float64   `json:"max"`
	Raw    []float64 `json:"raw"`
}

// Add adds a figure.
func (s *Spread) Add(v float64) {
	s.Raw = append(s.Raw, v)
	sorted := slices.Sorted(slices.Values(s.Raw))
	n := len(sorted)
	s.Min, s.Median, s.Max = sorted[0], (sorted[(n-1)/2]+sorted[n/2])/2, sorted[n-1]
}

// SpreadOf returns the spread of values, without NaN and infinite values. For example, a window
// without a CPU tick has no finite ratio, and JSON cannot represent it.
func SpreadOf(values []float64) Spread {
	var s Spread
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			s.Add(v)
		}
	}
	return s
}

// Ratios divides a by b repeat by repeat, so that each ratio is of adjacent runs.
func Ratios(a, b Spread) Spread {
	var out []float64
	for i := range min(len(a.Raw), len(b.Raw)) {
		out = append(out, a.Raw[i]/b.Raw[i])
	}
	return SpreadOf(out)
}

// Passes reports whether the median is within a bound. The note is set if a repeat is not.
func (s Spread) Passes(within func(float64) bool) (pass bool, note string) {
	if pass = within(s.Median); pass && (!within(s.Min) || !within(s.Max)) {
		note = "within the spread: not every repeat passes"
	}
	return pass, note
}

// Short formats a spread with three digits.
func Short(s Spread) string {
	switch {
	case len(s.Raw) == 0:
		return "–"
	case s.Min == s.Max:
		return Digits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Digits(s.Median), Digits(s.Min), Digits(s.Max))
}

// Digits formats v with three significant digits, and with all digits before the point.
func Digits(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Cells returns median, minimum and maximum for a CSV. The cells are empty without figures.
func Cells(s Spread) []string {
	if len(s.Raw) == 0 {
		return []string{"", "", ""}
	}
	return []string{Decimal(s.Median), Decimal(s.Min), Decimal(s.Max)}
}

// Decimal formats a figure for a CSV.
func Decimal(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

// UnknownName returns the error for a name that a table of cases does not contain.
func UnknownName(what, got string, known []string) error {
	return robocache.Misuse("bench", nil, "no %s named %q", what, got).
		WithHint("one of %s", strings.Join(known, ", "))
}

// Pick returns the entries of a table with the given names, in the order of names.
func Pick[T any](what string, all []T, name func(T) string, names []string) (out []T, err error) {
	known := make([]string, len(all))
	for i, x := range all {
		known[i] = name(x)
	}
	for _, n := range names {
		i := slices.Index(known, n)
		if i < 0 {
			return nil, UnknownName(what, n, known)
		}
		out = append(out, all[i])
	}
	return out, nil
}
