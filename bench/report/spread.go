package report

import (
	"fmt"
	"math"
	"sort"
)

// Spread is the figures of the repeats.
type Spread struct {
	Min    float64   `json:"min"`
	Median float64   `json:"median"`
	Max    float64   `json:"max"`
	Raw    []float64 `json:"raw"`
}

func (s *Spread) Add(v float64) {
	s.Raw = append(s.Raw, v)
	sorted := append([]float64(nil), s.Raw...)
	sort.Float64s(sorted)
	n := len(sorted)
	s.Min, s.Max = sorted[0], sorted[n-1]
	s.Median = sorted[n/2]
	if n%2 == 0 {
		s.Median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// String gives "median (min–max)".
func (s Spread) String() string {
	if len(s.Raw) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g (%.4g–%.4g)", s.Median, s.Min, s.Max)
}

// spreadOf leaves out what is no number: a window of no CPU tick has no ratio, and JSON no word for it.
func SpreadOf(values []float64) Spread {
	var s Spread
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			s.Add(v)
		}
	}
	return s
}
