package kernel

import (
	"strconv"
)

// NormKind is the formula of a Norm.
type NormKind uint8

const (
	MeanStd NormKind = iota // (x - A) / B
	MinMax                  // 2(x - A) / B - 1, not clipped
)

// Norm is a normalization before the only rounding (kernel.K10). A and B have one entry per
// channel. B = 0 marks a constant channel, whose result is 0.
type Norm struct {
	Kind NormKind
	A, B []float32
}

// NewMeanStd returns the Norm (x-mean)/(std+1e-8). The denominators are float32 sums, as in other
// robot-learning libraries.
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

// NewMinMax returns the Norm 2(x-lo)/(hi-lo)-1.
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

// checkChannels rejects statistics whose channels, each of plane columns, do not divide a row of
// cols columns.
func (n *Norm) checkChannels(op string, cols, plane int) error {
	channels := len(n.A)
	fits := cols == 0 || channels > 0 && plane <= cols/channels && cols%(plane*channels) == 0
	if channels != len(n.B) || !fits {
		return misuseError(
			op,
			"length mismatch",
			"statistics of "+strconv.Itoa(cols/plane)+" channels, or of a part that repeats",
			strconv.Itoa(len(n.A))+" and "+strconv.Itoa(len(n.B)),
		)
	}
	if n.Kind > MinMax {
		return misuseError(
			op,
			"unknown normalisation",
			"MeanStd or MinMax",
			strconv.Itoa(int(n.Kind)),
		)
	}
	return nil
}

// normOne normalizes one value in the computing type.
func normOne[T float32 | float64](n *Norm, x T, channel int) T {
	a, b := T(n.A[channel]), T(n.B[channel])
	switch {
	case b == 0:
		return 0
	case n.Kind == MeanStd:
		return (x - a) / b
	}
	return 2*(x-a)/b - 1
}
