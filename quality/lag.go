package quality

import "math"

const (
	lagTime = 0.5 // seconds for which lags are searched
	lagRows = 12  // rows for which lags are searched at least
	maxLag  = 48  // rows for which lags are searched at most
)

// lagLimit returns the largest lag that is searched, in rows.
func lagLimit(period float64, rows int) int {
	return min(max(int(math.Ceil(lagTime/period)), lagRows), maxLag, rows/3)
}

// bestLag returns the lag in rows by which b follows a, refined with a parabola, and the
// correlation at the lag. Both have the same columns of the same length. The correlation is Σ
// a[i]·b[i+lag] / √(Σa² Σb²) over all columns. It returns NaN if one of them is 0 throughout.
func bestLag(a, b [][]float64, most int) (lag, correlation float64) {
	nan := math.NaN()
	r := make([]float64, 2*most+1)
	energyA, energyB := runningEnergy(a), runningEnergy(b)
	n := len(energyA) - 1
	var products [lagsAtOnce]float64
	for first := -most; first <= most; first += lagsAtOnce {
		crossProducts(a, b, first, &products)
		for j, ab := range products {
			k := first + j
			if k > most {
				break
			}
			from, to := max(0, -k), min(n, n-k)
			aa, bb := energyA[to]-energyA[from], energyB[to+k]-energyB[from+k]
			if aa > 0 && bb > 0 {
				r[k+most] = ab / math.Sqrt(aa*bb)
			}
		}
	}
	top := 0
	for k := range r {
		if r[k] > r[top] {
			top = k
		}
	}
	if most < 1 || r[top] <= 0 {
		return nan, nan
	}
	lag = float64(top - most)
	if top > 0 && top < len(r)-1 {
		if c := r[top-1] - 2*r[top] + r[top+1]; c < 0 {
			lag += 0.5 * (r[top-1] - r[top+1]) / c
		}
	}
	return lag, r[top]
}

// lagsAtOnce is the number of lags that crossProducts computes together. Their sums do not depend on
// each other, so that a processor adds them in parallel.
const lagsAtOnce = 4

// crossProducts sets sums to the sums of products of all channels of a and b, for the lags first,
// first+1, … of b. Each sum is computed in the order of the channels and rows.
func crossProducts(a, b [][]float64, first int, sums *[lagsAtOnce]float64) {
	*sums = [lagsAtOnce]float64{}
	s0, s1, s2, s3 := 0.0, 0.0, 0.0, 0.0
	for c, u := range a {
		v, n := b[c], len(u)
		// All four lags have the rows [from, to).
		from := min(n, max(0, -first))
		to := max(from, min(n, n-first-lagsAtOnce+1))
		sum := func(total float64, k, from, to int) float64 {
			for i := max(from, -k); i < min(to, n-k); i++ {
				total += u[i] * v[i+k]
			}
			return total
		}
		s0 = sum(s0, first, 0, from)
		s1 = sum(s1, first+1, 0, from)
		s2 = sum(s2, first+2, 0, from)
		s3 = sum(s3, first+3, 0, from)
		if from < to {
			m := to - from
			v0, v1 := v[from+first:][:m], v[from+first+1:][:m]
			v2, v3 := v[from+first+2:][:m], v[from+first+3:][:m]
			for i, p := range u[from:to] {
				s0 += p * v0[i]
				s1 += p * v1[i]
				s2 += p * v2[i]
				s3 += p * v3[i]
			}
		}
		s0 = sum(s0, first, to, n)
		s1 = sum(s1, first+1, to, n)
		s2 = sum(s2, first+2, to, n)
		s3 = sum(s3, first+3, to, n)
	}
	*sums = [lagsAtOnce]float64{s0, s1, s2, s3}
}

// runningEnergy returns the sums of the squares of all columns over the rows before each row, and
// over all rows at the end.
func runningEnergy(columns [][]float64) []float64 {
	out := make([]float64, len(columns[0])+1)
	for _, v := range columns {
		for i, x := range v {
			out[i+1] += x * x
		}
	}
	for i := 1; i < len(out); i++ {
		out[i] += out[i-1]
	}
	return out
}

// steps returns the change of each column from row to row.
func steps(columns [][]float64) [][]float64 {
	out := make([][]float64, len(columns))
	for c, v := range columns {
		out[c] = make([]float64, max(0, len(v)-1))
		for i := range out[c] {
			out[c][i] = v[i+1] - v[i]
		}
	}
	return out
}

// centred returns v without its mean.
func centred(v []float64) []float64 {
	mean := 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x - mean
	}
	return out
}
