package kernel

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Kind says how one row of a plan is made.
type Kind uint8

const (
	Zero   Kind = iota // zero bits: nothing to take, or policy mask
	Copy               // the bits of sample Left
	Blend              // between samples Left and Right, at Weight
	Window             // the mean of samples Left … Right-1
)

// Plan is what time decides about each target row (K1). The slices have one entry a target; they
// are not to be changed once the plan is in use, and may then be read by many goroutines.
type Plan struct {
	Mode        Mode
	Sources     int // number of source timestamps
	Kind        []Kind
	Left, Right []int32
	// (t - s[Left]) / (s[Right] - s[Left]) in float64; outside [0,1] where the policy extrapolates
	Weight []float64
	Valid  []uint8 // 1: inside the data and no gap
	Sums   *Sums   // under Sum only
}

// Len is the number of target rows.
func (p *Plan) Len() int { return len(p.Kind) }

// check proves that every row of the plan reads inside the sources: a plan may come from outside
// the module.
func (p *Plan) check() error {
	n := len(p.Kind)
	if len(p.Left) != n || len(p.Right) != n || len(p.Weight) != n || len(p.Valid) != n {
		return misuse("plan", "length mismatch", "arrays of "+strconv.Itoa(n)+" rows", "others")
	}
	if s := p.Sums; (s != nil) != (p.Mode == ModeSum) ||
		s != nil && (len(s.From) != n || len(s.To) != n || len(s.Head) != n || len(s.Tail) != n) {
		return misuse(
			"plan",
			"length mismatch",
			"sums of "+strconv.Itoa(n)+" rows under sum, else none",
			"others",
		)
	}
	for i, k := range p.Kind {
		l, r := int(p.Left[i]), int(p.Right[i])
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
			return robocache.Misuse("resample", robocache.Where{"row": i}, "plan row outside the source range").
				Expected("samples below "+strconv.Itoa(p.Sources), strconv.Itoa(l)+", "+strconv.Itoa(r))
		}
	}
	return nil
}

func misuse(op, msg, want, got string) error {
	return robocache.Misuse(op, nil, "%s", msg).Expected(want, got)
}
