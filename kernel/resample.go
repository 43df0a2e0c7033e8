package kernel

import (
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Options are what values need beyond the plan. The zero value is right for linear, previous, next, nearest and mean.
type Options struct {
	Period float64  // angle; 0 = 2π
	Lo     *float64 // angle: results lie in [Lo, Lo+Period); nil = -Period/2
	Quats  [][4]int // slerp: the channels of each quaternion; nil = every four columns. Other channels are linear
	Norm   *Norm
	Valid  []uint8 // filled where not nil: the plan's validity, less what the values themselves make invalid (K6)
	Counts *Counts // added to where not nil
}

// Resample fills dst [T, D] from src [S, D] by the plan. The output type is that of dst.
func Resample(dst, src Matrix, p *Plan, opt Options) error {
	r := run{dst: dst, src: src, p: p, opt: opt}
	if err := r.check(); err != nil {
		return err
	}
	copy(opt.Valid, p.Valid)
	if dst.Rows > 0 && dst.Cols > 0 {
		r.rows()
	}
	if opt.Counts != nil {
		opt.Counts.Overflow += r.counts.Overflow
		opt.Counts.NaN += r.counts.NaN
	}
	return nil
}

// run is one call: the tiles live here, so that nothing is allocated (K12).
type run struct {
	dst, src   Matrix
	p          *Plan
	opt        Options
	period, lo float64
	wide       bool // the computing type is float64
	counts     Counts
	a32, b32   [tile]float32
	a64, b64   [tile]float64
}

func (r *run) check() error {
	if err := r.dst.check("resample", "out"); err != nil {
		return err
	}
	if err := r.src.check("resample", "data"); err != nil {
		return err
	}
	if err := r.p.check(); err != nil {
		return err
	}
	if r.src.Rows != r.p.Sources {
		return misuse("resample", "Source length mismatch (length of data and of its timestamps)", strconv.Itoa(r.p.Sources)+" rows", strconv.Itoa(r.src.Rows))
	}
	if r.dst.Rows != r.p.Len() || r.dst.Cols != r.src.Cols {
		return misuse("resample", "out has wrong shape", fmt.Sprintf("[%d, %d]", r.p.Len(), r.src.Cols), fmt.Sprintf("[%d, %d]", r.dst.Rows, r.dst.Cols))
	}
	if r.opt.Valid != nil && len(r.opt.Valid) != r.p.Len() {
		return misuse("resample", "out has wrong shape: valid", strconv.Itoa(r.p.Len())+" rows", strconv.Itoa(len(r.opt.Valid)))
	}
	if !r.dst.distinct() {
		return misuse("resample", "out overlaps itself", "strides that give each element its own place", fmt.Sprintf("%d, %d", r.dst.RowStride, r.dst.ColStride))
	}
	if r.dst.overlaps(&r.src) {
		return misuse("resample", "out aliases the data", "memory of its own", "shared memory")
	}
	if r.opt.Norm != nil {
		if err := r.opt.Norm.check(r.src.Cols); err != nil {
			return err
		}
	}
	return r.checkTypes()
}

func (r *run) checkTypes() error {
	from, to := r.src.DType, r.dst.DType
	bad := func(msg, want string) error {
		return misuse("resample", msg, want, from.String()+" → "+to.String())
	}
	switch {
	case r.p.Mode.Computes() && from == robocache.Bool:
		return bad("unsupported dtype: booleans are not computed with", "previous, next or nearest")
	case r.p.Mode.Computes() && from.Integer() && !to.Float():
		return bad("unsupported dtype: integers under mode "+r.p.Mode.String(), "a floating-point output dtype, or previous, next or nearest")
	case r.opt.Norm != nil && !to.Float():
		return bad("unsupported dtype: a normalised result", "a floating-point output dtype")
	case from != to && to == robocache.Bool, from != to && !from.Float() && !to.Float():
		return bad("dtypes must match", "equal types, or a floating-point one")
	}
	switch r.p.Mode {
	case Angle:
		r.period = r.opt.Period
		if r.period == 0 {
			r.period = 2 * math.Pi
		}
		if !(r.period > 0) || math.IsInf(r.period, 0) {
			return misuse("resample", "invalid period", "a finite number > 0", fmt.Sprint(r.opt.Period))
		}
		r.lo = -r.period / 2
		if r.opt.Lo != nil {
			r.lo = *r.opt.Lo
		}
		if math.IsNaN(r.lo) || math.IsInf(r.lo, 0) {
			return misuse("resample", "invalid lower end of the period", "a finite number", fmt.Sprint(r.lo))
		}
	case Slerp:
		if r.opt.Quats == nil && r.src.Cols%4 != 0 {
			return misuse("resample", "quaternions must have shape (…, 4)", "a multiple of 4 channels, or channel groups", strconv.Itoa(r.src.Cols))
		}
		for _, q := range r.opt.Quats {
			for _, c := range q {
				if c < 0 || c >= r.src.Cols {
					return misuse("resample", "quaternion channel outside the data", "0 … "+strconv.Itoa(r.src.Cols-1), strconv.Itoa(c))
				}
			}
		}
	}
	// float32 computes all but float64 data and integers on their way to float64.
	r.wide = from == robocache.Float64 || !from.Float() && to == robocache.Float64
	return nil
}

func (r *run) rows() {
	p := r.p
	bits := r.src.DType == r.dst.DType && r.opt.Norm == nil
	dense := bits && r.src.DType == robocache.Float32 && r.src.ColStride == 1 && r.dst.ColStride == 1
	for i, k := range p.Kind {
		a, b := int(p.Left[i]), int(p.Right[i])
		if k == Blend && (p.Weight[i] == 0 || p.Mode == Linear && !r.wide && float32(p.Weight[i]) == 0) {
			k = Copy // fma(0, Inf-v0, v0) would be NaN, and -0 would turn into +0
		}
		switch {
		case k == Zero:
			r.dst.zero(i)
		case k == Copy && bits:
			move(&r.dst, &r.src, i, a)
		case k == Copy:
			r.cast(i, a)
		case k == Window:
			r.mean(i, a, b)
		case p.Mode == Angle:
			r.angle(i, a, b, p.Weight[i])
		case p.Mode == Slerp:
			r.slerp(i, a, b, p.Weight[i])
		case dense:
			r.lerpDense(i, a, b, float32(p.Weight[i]))
		default:
			r.lerp(i, a, b, p.Weight[i])
		}
	}
}

func (r *run) finish32(x []float32, row, col int) {
	if r.opt.Norm != nil {
		Normalize(r.opt.Norm, x, col)
	}
	r.dst.store32(x, row, col, &r.counts)
}

func (r *run) finish64(x []float64, row, col int) {
	if r.opt.Norm != nil {
		Normalize(r.opt.Norm, x, col)
	}
	r.dst.store64(x, row, col, &r.counts)
}

// cast copies sample a into row i through the computing type.
func (r *run) cast(i, a int) {
	for col := 0; col < r.dst.Cols; col += tile {
		n := min(tile, r.dst.Cols-col)
		if r.wide {
			r.src.load64(r.a64[:n], a, col)
			r.finish64(r.a64[:n], i, col)
		} else {
			r.src.load32(r.a32[:n], a, col)
			r.finish32(r.a32[:n], i, col)
		}
	}
}
