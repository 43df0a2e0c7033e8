package kernel

import (
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Options are what values need beyond the plan. The zero value is right for linear, previous, next,
// nearest and mean.
type Options struct {
	Rule     Rule // what angle and slerp need; the mode is the plan's
	Epilogue Epilogue
	// augmentation: the sample of each entry, rows in turn (Augment.Samples is not looked at); nil
	// = all are sample 0
	Samples []int64
	// filled where not nil: the plan's validity, less what the values themselves make invalid (K6)
	Valid  []uint8
	Counts *Counts // added to where not nil
}

// Resample fills dst [T, D] from src [S, D] by the plan. The output type is that of dst.
func Resample(dst, src Matrix, p *Plan, opt Options) error {
	opt.Rule.Mode, opt.Rule.Continuous = p.Mode, false
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
	dst, src Matrix
	p        *Plan
	opt      Options
	ep       epilogue
	wide     bool // the computing type is float64
	counts   Counts
	a32, b32 [tile]float32
	a64, b64 [tile]float64
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
		return misuse(
			"resample",
			"Source length mismatch (length of data and of its timestamps)",
			strconv.Itoa(r.p.Sources)+" rows",
			strconv.Itoa(r.src.Rows),
		)
	}
	if r.dst.Rows != r.p.Len() || r.dst.Cols != r.src.Cols {
		return misuse(
			"resample",
			"out has wrong shape",
			fmt.Sprintf("[%d, %d]", r.p.Len(), r.src.Cols),
			fmt.Sprintf("[%d, %d]", r.dst.Rows, r.dst.Cols),
		)
	}
	if r.opt.Valid != nil && len(r.opt.Valid) != r.p.Len() {
		return misuse(
			"resample",
			"out has wrong shape: valid",
			strconv.Itoa(r.p.Len())+" rows",
			strconv.Itoa(len(r.opt.Valid)),
		)
	}
	if !r.dst.distinct() {
		return misuse(
			"resample",
			"out overlaps itself",
			"strides that give each element its own place",
			fmt.Sprintf("%d, %d", r.dst.RowStride, r.dst.ColStride),
		)
	}
	if r.dst.overlaps(&r.src) {
		return misuse("resample", "out aliases the data", "memory of its own", "shared memory")
	}
	if n := len(r.opt.Samples); n > 0 && r.dst.Rows%n != 0 {
		return batchError("resample", "batch of the samples", r.dst.Rows, n)
	}
	if err := r.opt.Rule.checkValues(
		"resample",
		r.src.Cols,
		r.src.DType,
		r.dst.DType,
		&r.opt.Epilogue,
	); err != nil {
		return err
	}
	if err := r.opt.Epilogue.check("resample", r.src.Cols); err != nil {
		return err
	}
	r.ep.start(&r.opt.Epilogue, r.opt.Samples, r.dst.Rows)
	// float32 computes all but float64 data and integers on their way to float64.
	r.wide = computesWide(r.src.DType, r.dst.DType)
	return nil
}

func computesWide(from, to robocache.DType) bool {
	return from == robocache.Float64 || !from.Float() && to == robocache.Float64
}

func (r *run) rows() {
	p := r.p
	bits := r.src.DType == r.dst.DType && !r.opt.Epilogue.computes()
	dense := bits && r.src.DType == robocache.Float32 && r.src.ColStride == 1 &&
		r.dst.ColStride == 1
	for i, k := range p.Kind {
		a, b := int(p.Left[i]), int(p.Right[i])
		if k == Blend &&
			(p.Weight[i] == 0 || p.Mode == Linear && !r.wide && float32(p.Weight[i]) == 0) {
			k = Copy // fma(0, Inf-v0, v0) would be NaN, and -0 would turn into +0
		}
		switch {
		case k == Zero:
			r.dst.zero(i)
		case p.Sums != nil:
			r.sum(i)
		case k == Copy && bits:
			move(&r.dst, &r.src, i, a)
		case k == Copy:
			r.cast(i, a, 0, r.dst.Cols)
		case k == Window:
			r.mean(i, a, b)
		case p.Mode == Angle:
			r.angle(i, a, b, p.Weight[i])
		case p.Mode == Slerp:
			r.slerp(i, a, b, p.Weight[i])
		case dense:
			r.lerpDense(i, a, b, float32(p.Weight[i]))
		default:
			r.lerp(i, a, b, p.Weight[i], 0, r.dst.Cols)
		}
	}
}

func (r *run) finish32(x []float32, row, col int) {
	finish(&r.ep, x, row, col, FMA32)
	r.dst.store32(x, row, col, &r.counts)
}

func (r *run) finish64(x []float64, row, col int) {
	finish(&r.ep, x, row, col, fma64)
	r.dst.store64(x, row, col, &r.counts)
}

// cast copies columns from … to-1 of sample a into row i through the computing type.
func (r *run) cast(i, a, from, to int) {
	for col := from; col < to; col += tile {
		n := min(tile, to-col)
		if r.wide {
			r.src.load64(r.a64[:n], a, col)
			r.finish64(r.a64[:n], i, col)
		} else {
			r.src.load32(r.a32[:n], a, col)
			r.finish32(r.a32[:n], i, col)
		}
	}
}
