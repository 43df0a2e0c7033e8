package kernel

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Check rejects shapes, types and strides that do not fit, and results that share memory with an
// input. It reads no memory. Each back end itself must check that plan rows lie inside the source.
func (op *ApplyOp) Check() (err error) {
	const name = "apply"
	for i := range op.Parts {
		p := &op.Parts[i]
		if err := p.checkPart(name); err != nil {
			return robocache.At(err, p.errorPlace(i))
		}
	}
	if err := checkOptional(name, "counts", op.Counts, robocache.Int64, 2); err != nil {
		return err
	}
	return checkTensors(op)
}

// opName implements Op.
func (op *ApplyOp) opName() string { return "apply" }

// errorPlace returns the place of part i for errors: its name, or its number if it has no name.
func (p *Part) errorPlace(i int) robocache.Where {
	if p.Name != "" {
		return robocache.Where{"stream": p.Name}
	}
	return robocache.Where{"stream": i}
}

// checkPart rejects shapes, types and options of the part that do not fit together.
func (p *Part) checkPart(op string) error {
	if err := p.Src.Check(op, "data"); err != nil {
		return err
	}
	if err := p.Out.Check(op, "out"); err != nil {
		return err
	}
	if len(p.Src.Shape) != 2 {
		return misuseError(op, "data must have shape [S, D]", "2 extents", fmt.Sprint(p.Src.Shape))
	}
	rows, cols := p.Src.Shape[0], p.Src.Shape[1]
	if rows > math.MaxInt32 { // plans store sample numbers as int32
		return tooManySamples(op, rows)
	}
	if err := p.checkPlan(op); err != nil {
		return err
	}
	if p.Kind != nil {
		rows = p.Kind.Len()
	}
	if len(p.Out.Shape) != 2 || p.Out.Shape[0] != rows || p.Out.Shape[1] != cols {
		return shapeError(op, "out", []int{rows, cols}, p.Out.Shape)
	}
	if err := checkOptional(op, "valid", p.Valid, robocache.Uint8, rows); err != nil {
		return err
	}
	if p.Rule.Mode == ModeSum {
		return sumUnsupported(op)
	}
	if p.Rule.Mode > Mean {
		return misuseError(op, "Invalid mode", "a known mode", p.Rule.Mode.String())
	}
	if p.Rule.Continuous {
		return misuseError(
			op,
			"continuous signs need the whole stream",
			"FuseOp",
			"rows that a plan has chosen",
		)
	}
	if err := p.Rule.checkValues(op, cols, p.Src.DType, p.Out.DType, &p.Epilogue); err != nil {
		return err
	}
	if err := p.Epilogue.checkEpilogue(op, cols); err != nil {
		return err
	}
	a := p.Epilogue.Augment
	if a == nil || a.Samples == nil {
		return nil
	}
	n := a.Samples.Len()
	dividesRows := n > 0 && rows%n == 0 || n == 0 && rows == 0
	if !dividesRows {
		return batchError(op, "batch of the samples", rows, n)
	}
	return p.Epilogue.checkSamples(op, n)
}

// checkPlan rejects a plan that is incomplete or whose tensors do not have one value per row.
func (p *Part) checkPlan(op string) error {
	const complete = "a plan with kind, left, right and weight"
	if p.Kind == nil {
		if p.Left != nil || p.Right != nil || p.Weight != nil {
			return misuseError(op, "length mismatch", complete, "no kind")
		}
		return nil
	}
	rows := p.Kind.Len()
	for _, t := range [...]struct {
		name string
		*Tensor
		dtype robocache.DType
	}{
		{"kind", p.Kind, robocache.Uint8},
		{"left", p.Left, robocache.Int32},
		{"right", p.Right, robocache.Int32},
		{"weight", p.Weight, robocache.Float64},
	} {
		if t.Tensor == nil {
			return misuseError(op, "length mismatch", complete, "no "+t.name)
		}
		if err := t.Check(op, t.name); err != nil {
			return err
		}
		if t.DType != t.dtype {
			return misuseError(
				op,
				"unsupported dtype of "+t.name,
				t.dtype.String(),
				t.DType.String(),
			)
		}
		if !slices.Equal(t.Shape, []int{rows}) {
			return misuseError(
				op,
				"length mismatch",
				fmt.Sprintf("%s [%d]", t.name, rows),
				fmt.Sprint(t.Shape),
			)
		}
	}
	return nil
}

// checkValues rejects a Rule whose values part does not fit the number of columns, the types from
// and to of data and result, or the epilogue.
func (r *Rule) checkValues(op string, cols int, from, to robocache.DType, e *Epilogue) (err error) {
	bad := func(msg, want string) error {
		return misuseError(op, msg, want, from.String()+" → "+to.String())
	}
	switch {
	case r.Mode.Computes() && from == robocache.Bool:
		return bad("unsupported dtype: booleans are not computed with", "previous, next or nearest")
	case r.Mode.Computes() && from.Integer() && !to.Float():
		return bad(
			"unsupported dtype: integers under mode "+r.Mode.String(),
			"a floating-point output dtype, or previous, next or nearest",
		)
	case e.changesValues() && !to.Float():
		return bad("unsupported dtype: a normalised result", "a floating-point output dtype")
	case from != to && to == robocache.Bool, from != to && !from.Float() && !to.Float():
		return bad("Stream dtypes must match", "equal types, or a floating-point one")
	}
	switch r.Mode {
	case Angle:
		if p := r.anglePeriod(); !(p > 0) || !isFinite(p) {
			return misuseError(op, "invalid period", "a finite number > 0", fmt.Sprint(r.Period))
		}
		if lo := r.angleLow(); !isFinite(lo) {
			return misuseError(
				op,
				"invalid lower end of the period",
				"a finite number",
				fmt.Sprint(lo),
			)
		}
	case ModeSum:
		return r.checkSummed(op, cols)
	case Slerp:
		if r.Continuous && !from.Float() {
			return bad("unsupported dtype: the sign of integers", "floating-point quaternions")
		}
		if err := r.checkGroups(op, cols); err != nil {
			return err
		}
		return nil
	}
	return nil
}

// checkGroups rejects channel numbers of quaternions and other rotations that do not fit cols
// columns.
func (r *Rule) checkGroups(op string, cols int) error {
	if r.Rotations != nil {
		if err := r.checkRotations(op, cols); err != nil {
			return err
		}
	}
	if r.Quats != nil {
		return r.checkQuats(op, cols)
	}
	if r.Rotations == nil && cols%4 != 0 {
		return misuseError(
			op,
			"quaternions must have shape (…, 4)",
			"a multiple of 4 channels, or channel groups",
			strconv.Itoa(cols),
		)
	}
	return nil
}

// errChannelTwice returns the error about a channel that two rotations have.
func errChannelTwice(op string, channel int) error {
	return misuseError(
		op,
		"quaternion channel named twice",
		"each channel once",
		strconv.Itoa(channel),
	)
}

// checkRotations rejects rotations that do not fit cols columns, and channels that a quaternion has
// too.
func (r *Rule) checkRotations(op string, cols int) error {
	if err := robocache.CheckRotations(r.Rotations, cols); err != nil {
		return err
	}
	if r.Continuous {
		return misuseError(
			op,
			"continuous signs",
			"quaternions alone",
			"rotations of other forms",
		)
	}
	for _, q := range r.Quats {
		for _, c := range q {
			for _, rot := range r.Rotations {
				if c >= rot.At && c < rot.At+rot.Width() {
					return errChannelTwice(op, c)
				}
			}
		}
	}
	return nil
}

// checkQuats rejects channels of quaternions that are outside the data or named twice.
func (r *Rule) checkQuats(op string, cols int) error {
	for i, q := range r.Quats {
		for j, c := range q {
			if c < 0 || c >= cols {
				return misuseError(
					op,
					"quaternion channel outside the data",
					"0 … "+strconv.Itoa(cols-1),
					strconv.Itoa(c),
				)
			}
			for k := range 4*i + j { // all channels before this one
				if r.Quats[k/4][k%4] == c {
					return errChannelTwice(op, c)
				}
			}
		}
	}
	return nil
}
