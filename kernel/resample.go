package kernel

import (
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Options are the settings for values that a plan does not have. The zero value suits linear,
// previous, next, nearest and mean.
type Options struct {
	Rule     Rule // settings of angle, slerp and sum; the mode is that of the plan
	Epilogue Epilogue
	// augmentation: sample number of each entry, whose rows are consecutive. Augment.Samples is
	// ignored. nil = all rows belong to sample 0.
	Samples []int64
	// If it is not nil, Resample writes the validity of each row to it: that of the plan, or 0 if
	// the values of the row are invalid (kernel.K6).
	Valid  []uint8
	Counts *Counts // if not nil, the counts are added to it
}

// Resample computes dst [T, D] from src [S, D] by the plan. The output type is that of dst.
func Resample(dst, src Matrix, p *Plan, opt Options) error {
	opt.Rule.Mode = p.Mode
	opt.Rule.Continuous = false
	r := resampleRun{dst: dst, src: src, plan: p, opt: opt}
	if err := r.checkInputs(); err != nil {
		return err
	}
	copy(opt.Valid, p.Valid)
	if dst.Rows > 0 && dst.Cols > 0 {
		r.makeRows()
	}
	if opt.Counts != nil {
		opt.Counts.Overflow += r.counts.Overflow
		opt.Counts.NaN += r.counts.NaN
	}
	return nil
}

// resampleRun is one call of Resample. It contains the tiles, so that nothing is allocated
// (kernel.K12).
type resampleRun struct {
	dst, src Matrix
	plan     *Plan
	opt      Options
	epilogue rowEpilogue
	wide     bool // the computing type is float64
	counts   Counts
	a32, b32 [tile]float32
	a64, b64 [tile]float64
}

// checkInputs rejects arguments that do not fit together. It also sets r.epilogue and r.wide.
func (r *resampleRun) checkInputs() error {
	if err := r.dst.checkInside("resample", "out"); err != nil {
		return err
	}
	if err := r.src.checkInside("resample", "data"); err != nil {
		return err
	}
	if err := r.plan.checkRows(); err != nil {
		return err
	}
	if r.src.Rows != r.plan.Sources {
		return misuseError(
			"resample",
			"Source length mismatch (length of data and of its timestamps)",
			strconv.Itoa(r.plan.Sources)+" rows",
			strconv.Itoa(r.src.Rows),
		)
	}
	if r.dst.Rows != r.plan.Len() || r.dst.Cols != r.src.Cols {
		return misuseError(
			"resample",
			"out has wrong shape",
			fmt.Sprintf("[%d, %d]", r.plan.Len(), r.src.Cols),
			fmt.Sprintf("[%d, %d]", r.dst.Rows, r.dst.Cols),
		)
	}
	if r.opt.Valid != nil && len(r.opt.Valid) != r.plan.Len() {
		return misuseError(
			"resample",
			"out has wrong shape: valid",
			strconv.Itoa(r.plan.Len())+" rows",
			strconv.Itoa(len(r.opt.Valid)),
		)
	}
	if !r.dst.hasDistinctElements() {
		return misuseError(
			"resample",
			"out overlaps itself",
			"strides that give each element its own place",
			fmt.Sprintf("%d, %d", r.dst.RowStride, r.dst.ColStride),
		)
	}
	if r.dst.overlapsWith(&r.src) {
		return misuseError("resample", "out aliases the data", "memory of its own", "shared memory")
	}
	if n := len(r.opt.Samples); n > 0 && r.dst.Rows%n != 0 {
		return batchError("resample", "batch of the samples", r.dst.Rows, n)
	}
	if err := r.opt.Rule.checkValues("resample", r.src.Cols, r.src.DType, r.dst.DType,
		&r.opt.Epilogue); err != nil {
		return err
	}
	if err := r.opt.Epilogue.checkEpilogue("resample", r.src.Cols); err != nil {
		return err
	}
	r.epilogue.startRows(&r.opt.Epilogue, r.opt.Samples, r.dst.Rows)
	// float64 is used for float64 data and for integers that are written as float64. Otherwise the
	// computing type is float32.
	r.wide = computesWide(r.src.DType, r.dst.DType)
	return nil
}

// isZeroWeight reports whether a weight is 0 in the computing type.
func (r *resampleRun) isZeroWeight(weight float64) bool {
	isNarrow := r.plan.Mode == Linear && !r.wide
	return weight == 0 || isNarrow && float32(weight) == 0
}

// computesWide reports whether float64 is the computing type for data of type from that is written
// as type to.
func computesWide(from, to robocache.DType) bool {
	return from == robocache.Float64 || !from.Float() && to == robocache.Float64
}

// makeRows computes every row by its kind.
func (r *resampleRun) makeRows() {
	p := r.plan
	keepsBits := r.src.DType == r.dst.DType && !r.opt.Epilogue.changesValues()
	isDense := keepsBits && r.src.DType == robocache.Float32 && r.src.ColStride == 1 &&
		r.dst.ColStride == 1
	for i, k := range p.Kind {
		a, b := int(p.Left[i]), int(p.Right[i])
		if k == Blend && r.isZeroWeight(p.Weight[i]) {
			k = Copy // fma(0, Inf-v0, v0) would be NaN, and -0 would become +0
		}
		switch {
		case k == Zero:
			r.dst.zeroRow(i)
		case p.Sums != nil:
			r.sumRow(i)
		case k == Copy && keepsBits:
			moveRow(&r.dst, &r.src, i, a)
		case k == Copy:
			r.castColumns(i, a, 0, r.dst.Cols)
		case k == Window:
			r.meanRow(i, a, b)
		case p.Mode == Angle:
			r.angleRow(i, a, b, p.Weight[i])
		case p.Mode == Slerp:
			r.slerpRow(i, a, b, p.Weight[i])
		case isDense:
			r.lerpDense(i, a, b, float32(p.Weight[i]))
		default:
			r.lerpColumns(i, a, b, p.Weight[i], 0, r.dst.Cols)
		}
	}
}

// finishRow32 applies the epilogue to x and stores it in a row, from column col on. x must not be
// longer than tile.
func (r *resampleRun) finishRow32(x []float32, row, col int) {
	applyEpilogue(&r.epilogue, x, row, col, FMA32)
	r.dst.storeRow32(x, row, col, &r.counts)
}

// finishRow64 is finishRow32 for float64.
func (r *resampleRun) finishRow64(x []float64, row, col int) {
	applyEpilogue(&r.epilogue, x, row, col, fma64)
	r.dst.storeRow64(x, row, col, &r.counts)
}

// castColumns copies columns from … to-1 of sample a into row i through the computing type.
func (r *resampleRun) castColumns(i, a, from, to int) {
	for col := from; col < to; col += tile {
		n := min(tile, to-col)
		if r.wide {
			r.src.loadRow64(r.a64[:n], a, col)
			r.finishRow64(r.a64[:n], i, col)
		} else {
			r.src.loadRow32(r.a32[:n], a, col)
			r.finishRow32(r.a32[:n], i, col)
		}
	}
}
