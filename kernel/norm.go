package kernel

import "strconv"

// NormKind says which epilogue a Norm is.
type NormKind uint8

const (
	MeanStd NormKind = iota // (x - A) / B
	MinMax                  // 2(x - A) / B - 1, not clipped
	Unit                    // x / 255
)

// Norm is a normalisation before the only rounding (K10). A and B have one entry a column; B = 0 marks a constant
// channel, whose result is 0.
type Norm struct {
	Kind NormKind
	A, B []float32
}

// NewMeanStd makes (x-mean)/(std+1e-8). The denominators are float32 sums, as the field's are.
func NewMeanStd(mean, std []float64) *Norm {
	n := &Norm{Kind: MeanStd, A: make([]float32, len(mean)), B: make([]float32, len(std))}
	for i, m := range mean {
		n.A[i] = float32(m)
	}
	for i, s := range std {
		if s != 0 {
			n.B[i] = float32(s) + 1e-8
		}
	}
	return n
}

// NewMinMax makes 2(x-lo)/(hi-lo)-1.
func NewMinMax(lo, hi []float64) *Norm {
	n := &Norm{Kind: MinMax, A: make([]float32, len(lo)), B: make([]float32, len(hi))}
	for i, l := range lo {
		n.A[i] = float32(l)
	}
	for i := range min(len(lo), len(hi)) {
		n.B[i] = float32(hi[i]) - float32(lo[i])
	}
	return n
}

func (n *Norm) check(cols int) error {
	if n.Kind != Unit && (len(n.A) != cols || len(n.B) != cols) {
		return misuse("resample", "length mismatch", "statistics of "+strconv.Itoa(cols)+" channels", strconv.Itoa(len(n.A))+" and "+strconv.Itoa(len(n.B)))
	}
	return nil
}

// Normalize normalises values of one row, from column col on, in the type that they are computed in.
func Normalize[T float32 | float64](n *Norm, x []T, col int) {
	if n.Kind == Unit {
		for i := range x {
			x[i] /= 255
		}
		return
	}
	a, b := n.A[col:], n.B[col:]
	for i, v := range x {
		switch {
		case b[i] == 0:
			x[i] = 0
		case n.Kind == MeanStd:
			x[i] = (v - T(a[i])) / T(b[i])
		default:
			x[i] = 2*(v-T(a[i]))/T(b[i]) - 1
		}
	}
}
