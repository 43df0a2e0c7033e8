package stats

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// Moments holds count, extremes, mean and squared deviation of the columns of a matrix. Use
// NewMoments to create one; the zero value is not usable.
type Moments struct {
	N         []int64
	Min, Max  []float64
	NonFinite int64 // number of values that are left out (stats.S5)
	// first value of each column. Sums are of distances from it, so that they do not cancel.
	base     []float64
	mean, m2 []float64 // of the distances
}

// NewMoments returns an empty accumulator for width columns.
func NewMoments(width int) *Moments {
	v := columnsOf(5, width)
	m := &Moments{N: make([]int64, width), Min: v[0], Max: v[1], base: v[2], mean: v[3], m2: v[4]}
	for i := range m.Min {
		m.Min[i], m.Max[i] = math.Inf(1), math.Inf(-1)
	}
	return m
}

// columnsOf returns n lists of width numbers each, in one allocation. An episode has many columns
// of few values.
func columnsOf(n, width int) [][]float64 {
	all, out := make([]float64, n*width), make([][]float64, n)
	for i := range out {
		out[i] = all[i*width : (i+1)*width : (i+1)*width]
	}
	return out
}

// Add adds values, row after row. Here and in all other sums, products are converted before they
// are added. The conversion prevents a fused multiply-add, which only some builds have.
func (m *Moments) Add(values []float64) {
	for c, w := 0, len(m.N); c < w && c < len(values); c++ {
		m.addColumn(c, values[c:], w)
	}
}

// addColumn adds every w-th value to column c.
func (m *Moments) addColumn(c int, values []float64, w int) {
	var n int64
	var sum float64
	lo, hi, base := m.Min[c], m.Max[c], m.base[c]
	first := m.N[c] == 0
	for i := 0; i < len(values); i += w {
		v := values[i]
		if v-v != 0 { // NaN or infinite
			continue
		}
		if first {
			base, first = v, false
		}
		n++
		sum += v - base
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	m.NonFinite += int64((len(values)+w-1)/w) - n
	if n == 0 {
		return
	}
	m.Min[c], m.Max[c], m.base[c] = lo, hi, base
	mean := sum / float64(n)
	var m2, rest float64
	for i := 0; i < len(values); i += w {
		if v := values[i]; v-v == 0 {
			d := v - base - mean
			m2 += float64(d * d)
			rest += d
		}
	}
	// Correct the rounding of mean to second order.
	m2 -= float64(rest * rest / float64(n))
	m.mergeColumn(c, n, mean+rest/float64(n), m2)
}

// Merge adds the values that o has counted.
func (m *Moments) Merge(o *Moments) {
	m.NonFinite += o.NonFinite
	for c := range m.N {
		if o.N[c] > 0 {
			m.Min[c], m.Max[c] = min(m.Min[c], o.Min[c]), max(m.Max[c], o.Max[c])
			if m.N[c] == 0 {
				m.base[c] = o.base[c]
			}
			m.mergeColumn(c, o.N[c], o.base[c]-m.base[c]+o.mean[c], o.m2[c])
		}
	}
}

func (m *Moments) mergeColumn(c int, n int64, mean, m2 float64) {
	if m.N[c] == 0 {
		m.N[c], m.mean[c], m.m2[c] = n, mean, m2
		return
	}
	na, nb := float64(m.N[c]), float64(n)
	d := mean - m.mean[c]
	m.N[c] += n
	m.mean[c] += float64(d * (nb / (na + nb)))
	m.m2[c] += m2 + float64(d*d*(na*nb/(na+nb)))
}

// Mean returns the mean of a column, or 0 if it has no values.
func (m *Moments) Mean(c int) float64 { return m.base[c] + m.mean[c] }

// Std returns the population standard deviation of a column (numpy's ddof=0).
func (m *Moments) Std(c int) float64 {
	if m.N[c] == 0 {
		return 0
	}
	return math.Sqrt(max(0, m.m2[c]) / float64(m.N[c]))
}

// MomentsOf returns the Moments of statistics of fs.Count rows.
func MomentsOf(fs *robocache.FeatureStats) *Moments {
	m := NewMoments(len(fs.Mean))
	copy(m.base, fs.Mean)
	for c := range m.N {
		m.N[c] = fs.Count
		if fs.Std != nil {
			m.m2[c] = fs.Std[c] * fs.Std[c] * float64(fs.Count)
		}
		if fs.Min != nil && fs.Max != nil {
			m.Min[c], m.Max[c] = fs.Min[c], fs.Max[c]
		}
	}
	return m
}

// Stats returns the statistics without quantiles, for rows of one axis.
func (m *Moments) Stats() *robocache.FeatureStats {
	fs := &robocache.FeatureStats{Min: m.Min, Max: m.Max, Shape: []int{len(m.N)}}
	for c, n := range m.N {
		fs.Count = max(fs.Count, n)
		fs.Mean, fs.Std = append(fs.Mean, m.Mean(c)), append(fs.Std, m.Std(c))
	}
	return fs
}
