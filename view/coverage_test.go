package view

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPrincipalComponents compares the components of two correlated channels with the closed form:
// the eigenvalues of [[1, r], [r, 1]] are 1 + r and 1 − r. A constant channel and a NaN change
// nothing.
func TestPrincipalComponents(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var points [][]float64
	var sxy, sxx, syy, sx, sy float64
	for range 5000 {
		x := r.NormFloat64()
		y := 0.6*x + 0.8*r.NormFloat64()
		points = append(points, []float64{100 + 5*x, 7, -2 * y})
		sx, sy, sxx, syy, sxy = sx+x, sy+y, sxx+x*x, syy+y*y, sxy+x*y
	}
	n := float64(len(points))
	correlation := (sxy - sx*sy/n) / math.Sqrt((sxx-sx*sx/n)*(syy-sy*sy/n))
	points = append(points, []float64{math.NaN(), 7, math.NaN()})
	scores, explained := principalComponents(points)
	for k, want := range []float64{(1 + correlation) / 2, (1 - correlation) / 2} {
		variance := 0.0
		for _, v := range scores[k] {
			variance += v * v / n
		}
		if math.Abs(explained[k]-want) > 1e-3 || math.Abs(variance-2*want) > 1e-2 {
			t.Errorf("component %d: %v of the variance, scores %v, want %v", k, explained[k],
				variance/2, want)
		}
	}
	if last := scores[0][len(points)-1]; last != 0 {
		t.Errorf("a row of NaN has the score %v, want that of the mean, 0", last)
	}
}

// TestCoverage: all rows of a small dataset lie in the cells of the two channels that NumPy's
// histogram2d would fill.
func TestCoverage(t *testing.T) {
	s := serveSets(t, Options{}, newNumbers(3, 100, 4))
	var h struct {
		Points, Bins, Rows, Episodes int
		Labels                       [2]string
		Low, High                    [2]float64
	}
	counts := s.columns("/api/coverage?key=observation.state&x=1&y=2", &h)[0]
	want := make([]float64, h.Points)
	value := func(row, c int) float64 { return float64(float32(math.Sin(float64(row)/50 + float64(c)))) }
	low, high := [2]float64{9, 9}, [2]float64{-9, -9}
	for row := range 100 {
		for k, c := range []int{1, 2} {
			low[k], high[k] = min(low[k], value(row, c)), max(high[k], value(row, c))
		}
	}
	for row := range 100 {
		cell := [2]int{}
		for k, c := range []int{1, 2} {
			share := (value(row, c) - low[k]) / (high[k] - low[k])
			cell[k] = min(h.Bins-1, int(share*float64(h.Bins)))
		}
		want[cell[1]*h.Bins+cell[0]] += 3
	}
	if h.Rows != 300 || h.Episodes != 3 || h.Labels != [2]string{"1", "2"} || h.Low != low ||
		h.High != high {
		t.Errorf("%+v, want from %v to %v", h, low, high)
	}
	for i := range want {
		if counts[i] != want[i] {
			t.Fatalf("cell %d: %v, want %v", i, counts[i], want[i])
		}
	}
}
