package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Spread is the figures of the repeats.
type Spread struct {
	Min    float64   `json:"min"`
	Median float64   `json:"median"`
	Max    float64   `json:"max"`
	Raw    []float64 `json:"raw"`
}

// Add takes one more figure.
func (s *Spread) Add(v float64) {
	s.Raw = append(s.Raw, v)
	sorted := slices.Sorted(slices.Values(s.Raw))
	n := len(sorted)
	s.Min, s.Median, s.Max = sorted[0], (sorted[(n-1)/2]+sorted[n/2])/2, sorted[n-1]
}

// SpreadOf leaves out what is no number: a window of no CPU tick has no ratio, and JSON no word for
// it.
func SpreadOf(values []float64) Spread {
	var s Spread
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			s.Add(v)
		}
	}
	return s
}

// Ratios divides repeat by repeat: figures that stood beside each other.
func Ratios(a, b Spread) Spread {
	var out []float64
	for i := range min(len(a.Raw), len(b.Raw)) {
		out = append(out, a.Raw[i]/b.Raw[i])
	}
	return SpreadOf(out)
}

// Passes holds the median against a bound; the note says where not every repeat is within it.
func (s Spread) Passes(within func(float64) bool) (pass bool, note string) {
	if pass = within(s.Median); pass && (!within(s.Min) || !within(s.Max)) {
		note = "within the spread: not every repeat passes"
	}
	return pass, note
}

// Short is a spread with three digits.
func Short(s Spread) string {
	switch {
	case len(s.Raw) == 0:
		return "–"
	case s.Min == s.Max:
		return Digits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Digits(s.Median), Digits(s.Min), Digits(s.Max))
}

// Digits gives three digits, and no fewer before the point.
func Digits(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Cells are a spread's median, minimum and maximum for a CSV; empty where there is none.
func Cells(s Spread) []string {
	if len(s.Raw) == 0 {
		return []string{"", "", ""}
	}
	return []string{Decimal(s.Median), Decimal(s.Min), Decimal(s.Max)}
}

// Decimal is a figure of a CSV.
func Decimal(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

// UnknownName is the error of a name that a table of cases does not have.
func UnknownName(what, got string, known []string) error {
	return robocache.Misuse("bench", nil, "no %s named %q", what, got).
		WithHint("one of %s", strings.Join(known, ", "))
}

// Pick finds the entries of a table by name, in the order asked for.
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
