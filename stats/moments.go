package stats

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// Moments holds count, extremes, mean and squared deviation of the columns of a matrix. The zero
// value is not usable; see NewMoments.
type Moments struct {
	N         []int64
	Min, Max  []float64
	NonFinite int64 // values left out (S5)
	// first value of each column: what is summed is the distance from it, which cancels nothing
	base     []float64
	mean, m2 []float64 // of the distances
}

// NewMoments makes an empty accumulator of width columns.
func NewMoments(width int) *Moments {
	v := columnsOf(5, width)
	m := &Moments{N: make([]int64, width), Min: v[0], Max: v[1], base: v[2], mean: v[3], m2: v[4]}
	for i := range m.Min {
		m.Min[i], m.Max[i] = math.Inf(1), math.Inf(-1)
	}
	return m
}

// columnsOf cuts lists of width numbers each out of one piece of memory: an episode has many
// columns of few values.
func columnsOf(n, width int) [][]float64 {
	all, out := make([]float64, n*width), make([][]float64, n)
	for i := range out {
		out[i] = all[i*width : (i+1)*width : (i+1)*width]
	}
	return out
}

// Add takes rows of values, row after row. Products are converted before they are added, here and
// wherever numbers are summed: the conversion forbids a fused multiply-add, which some builds have
// and others have not.
func (m *Moments) Add(values []float64) {
	for c, w := 0, len(m.N); c < w && c < len(values); c++ {
		m.column(c, values[c:], w)
	}
}

// column adds every w-th value to column c.
func (m *Moments) column(c int, values []float64, w int) {
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
	// The rounding of mean is taken back to second order.
	m2 -= float64(rest * rest / float64(n))
	m.merge(c, n, mean+rest/float64(n), m2)
}

// Merge adds what o has seen.
func (m *Moments) Merge(o *Moments) {
	m.NonFinite += o.NonFinite
	for c := range m.N {
		if o.N[c] > 0 {
			m.Min[c], m.Max[c] = min(m.Min[c], o.Min[c]), max(m.Max[c], o.Max[c])
			if m.N[c] == 0 {
				m.base[c] = o.base[c]
			}
			m.merge(c, o.N[c], o.base[c]-m.base[c]+o.mean[c], o.m2[c])
		}
	}
}

func (m *Moments) merge(c int, n int64, mean, m2 float64) {
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

// Mean is the mean of a column; 0 where it has no values.
func (m *Moments) Mean(c int) float64 { return m.base[c] + m.mean[c] }

// Std is the population standard deviation of a column (numpy's ddof=0).
func (m *Moments) Std(c int) float64 {
	if m.N[c] == 0 {
		return 0
	}
	return math.Sqrt(max(0, m.m2[c]) / float64(m.N[c]))
}

// MomentsOf makes Moments of what statistics say of fs.Count rows.
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

// Stats are the statistics without quantiles, of rows of one axis.
func (m *Moments) Stats() *robocache.FeatureStats {
	fs := &robocache.FeatureStats{Min: m.Min, Max: m.Max, Shape: []int{len(m.N)}}
	for c, n := range m.N {
		fs.Count = max(fs.Count, n)
		fs.Mean, fs.Std = append(fs.Mean, m.Mean(c)), append(fs.Std, m.Std(c))
	}
	return fs
}
