package kernel

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Kind states how one row of a plan is computed.
type Kind uint8

const (
	Zero   Kind = iota // zero bits: no sample, or edge policy mask
	Copy               // the bits of sample Left
	Blend              // between samples Left and Right, at Weight
	Window             // the mean of samples Left … Right-1
)

// Plan holds everything about each target row that depends on time (kernel.K1). The slices have one
// entry per target. Once a plan is in use its slices must not change; it is then safe for
// concurrent use.
type Plan struct {
	Mode        Mode
	Sources     int // number of source timestamps
	Kind        []Kind
	Left, Right []int32
	// (t - s[Left]) / (s[Right] - s[Left]) in float64; outside [0,1] if the policy extrapolates
	Weight []float64
	Valid  []uint8 // 1: inside the data and not in a gap
	Sums   *Sums   // ModeSum only
}

// Len returns the number of target rows.
func (p *Plan) Len() int { return len(p.Kind) }

// checkRows rejects a plan with a row that reads outside the sources. A plan can come from outside
// the module.
func (p *Plan) checkRows() error {
	n := len(p.Kind)
	if len(p.Left) != n || len(p.Right) != n || len(p.Weight) != n || len(p.Valid) != n {
		return misuseError(
			"plan",
			"length mismatch",
			"arrays of "+strconv.Itoa(n)+" rows",
			"others",
		)
	}
	isSum := p.Mode == ModeSum
	if isSum != (p.Sums != nil) || isSum && !p.Sums.hasRows(n) {
		return misuseError(
			"plan",
			"length mismatch",
			"sums of "+strconv.Itoa(n)+" rows under sum, else none",
			"others",
		)
	}
	for i, k := range p.Kind {
		l, r := int(p.Left[i]), int(p.Right[i]) // sample numbers
		ok := true
		switch k {
		case Zero:
		case Copy:
			ok = l >= 0 && l < p.Sources
		case Blend:
			ok = l >= 0 && l < p.Sources && r >= 0 && r < p.Sources
		case Window:
			ok = l >= 0 && l < r && r <= p.Sources
		default:
			ok = false
		}
		if ok && p.Sums != nil && k != Zero {
			ok = p.Sums.checkRow(i, p.Sources)
		}
		if !ok {
			return robocache.Misuse("resample", robocache.Where{"row": i},
				"plan row outside the source range").
				Expected(
					"samples below "+strconv.Itoa(p.Sources),
					strconv.Itoa(l)+", "+strconv.Itoa(r),
				)
		}
	}
	return nil
}

// misuseError returns a Misuse error of operation op without a place. msg names the problem; want
// and got are the expected and the actual value.
func misuseError(op, msg, want, got string) error {
	return robocache.Misuse(op, nil, "%s", msg).Expected(want, got)
}
