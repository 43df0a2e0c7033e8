package report

import "testing"

func TestSpread(t *testing.T) {
	var s Spread
	for _, v := range []float64{5, 1, 3, 2} {
		s.Add(v)
	}
	if s.Min != 1 || s.Max != 5 || s.Median != 2.5 || len(s.Raw) != 4 {
		t.Errorf("%+v", s)
	}
}
