package kernel

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// runReference resamples every stream of every entry into its columns. It checks all times before
// it writes anything.
func (op *FuseOp) runReference() error {
	// The first pass only plans, so that an error leaves the results unchanged.
	for _, write := range []bool{false, true} {
		for b := range op.Out.Shape[0] {
			col := 0
			for i := range op.Series {
				s := &op.Series[i]
				if err := op.runEntry(s, b, i, col, write); err != nil {
					return entryError(err, op.opName(), s.errorPlace(i, len(op.Series)), b)
				}
				col += s.columnCount()
			}
		}
	}
	return nil
}

// entryError adds the operation, stream and entry to an error of planning.
func entryError(err error, op string, stream robocache.Where, entry int) error {
	err = robocache.At(robocache.At(err, stream), robocache.Where{"batch": entry})
	var e *robocache.Error
	if errors.As(err, &e) { // At has copied the error, so it may be changed
		e.Op = op
	}
	return err
}

// runEntry plans stream i, which is s, for entry b. If write is set, it also computes the rows, in
// the columns from col on.
func (op *FuseOp) runEntry(s *Series, b, i, col int, write bool) error {
	p, from, err := s.planEntry(&op.Targets, b, op.Clock, op.Epsilon)
	if err != nil || !write {
		return err
	}
	src := s.entryValues(b, from, p.Sources)
	if s.Rule.Mode == Slerp && s.Rule.Continuous {
		signed := Dense(
			make([]byte, src.Rows*src.Cols*src.DType.Size()),
			src.DType,
			src.Rows,
			src.Cols,
		)
		if err := ContinuousSigns(signed, src, s.Rule.Quats); err != nil {
			return err
		}
		src = signed
	}
	rows := op.Out.Shape[1]
	valid := make([]uint8, rows)
	sample := int64(b)
	if a := s.Epilogue.Augment; a != nil && a.Samples != nil {
		sample = a.Samples.int64At(b)
	}
	opt := Options{Rule: s.Rule, Epilogue: s.Epilogue, Samples: []int64{sample}, Valid: valid}
	out := op.Out.matrixView(0, rows, b).Columns(col, s.columnCount())
	if err := resampleCounted(out, src, p, opt, op.Counts); err != nil || op.Valid == nil {
		return err
	}
	for row, v := range valid {
		op.Valid.Data[op.Valid.byteOffset(b, row, i)] = v
	}
	return nil
}

// resampleCounted calls Resample and adds the counts of overflows and NaN to the tensor to.
func resampleCounted(dst, src Matrix, p *Plan, opt Options, to *Tensor) error {
	var counts Counts
	opt.Counts = &counts
	err := Resample(dst, src, p, opt)
	to.addInt64(counts.Overflow, 0)
	to.addInt64(counts.NaN, 1)
	return err
}

// entryValues returns rows from … from+n-1 of Values, which belong to entry b.
func (s *Series) entryValues(b, from, n int) Matrix {
	if s.Offsets != nil {
		return s.Values.matrixView(from, n)
	}
	return s.Values.matrixView(from, n, b)
}

// Rows returns the rows of a stream that belong to entry b: from … from+n-1. It rejects invalid
// lengths and offsets.
func (s *Series) Rows(b int) (from, n int, err error) {
	rows := s.Values.Shape[len(s.Values.Shape)-2]
	switch {
	case s.Lengths != nil:
		if k := s.Lengths.int64At(b); k >= 0 && k <= int64(rows) {
			return 0, int(k), nil
		}
		return 0, 0, lengthError("lengths", fmt.Sprintf("0 … %d", rows), s.Lengths.int64At(b))
	case s.Offsets == nil:
		return 0, rows, nil
	}
	first := s.Offsets.int64At(b)
	end := s.Offsets.int64At(b + 1)
	if first < 0 || first > int64(rows) {
		return 0, 0, lengthError("offsets", fmt.Sprintf("0 … %d", rows), first)
	}
	if end < first || end > int64(rows) {
		return 0, 0, lengthError("offsets", fmt.Sprintf("%d … %d", first, rows), end)
	}
	if end-first > math.MaxInt32 {
		return 0, 0, tooManySamples("resample", int(end-first))
	}
	return int(first), int(end - first), nil
}

// lengthError returns the error for an invalid value of the tensor lengths or offsets.
func lengthError(name, want string, got int64) error {
	return robocache.Malformed("resample", robocache.Where{"tensor": name},
		"Source length mismatch (length outside the data)").
		Expected(want, strconv.FormatInt(got, 10))
}

// Plan returns the plan of entry b for targets in host memory, under the clock Nanoseconds. first
// is the entry's first row in Values.
func (s *Series) Plan(targets *Tensor, b int) (p *Plan, first int, err error) {
	return s.planEntry(targets, b, Nanoseconds, 0)
}

// planEntry reads the times of entry b and returns its plan. from is the first row of the entry in
// Values.
func (s *Series) planEntry(
	targets *Tensor,
	b int,
	clock Clock,
	epsilon float64,
) (p *Plan, from int, err error) {
	from, n, err := s.Rows(b)
	if err != nil {
		return p, from, err
	}
	src, err := s.Times.readTimes(clock, from, n, b, "index", "timestamp")
	if err != nil {
		return p, from, err
	}
	to, err := targets.readTimes(
		clock,
		0,
		targets.Shape[len(targets.Shape)-1],
		b,
		"row",
		"target time",
	)
	if err != nil {
		return p, from, err
	}
	if clock == AsGiven {
		if err := CheckTimestamps(src.seconds); err != nil {
			return p, from, err
		}
		p = MakePlan(s.Rule.Mode, len(to.seconds))
		return p, from, p.FillAsGiven(src.seconds, to.seconds, &s.Rule, epsilon)
	}
	planValue, err := NewPlan(src.ns, to.ns, s.Rule)
	if err != nil {
		return p, from, err
	}
	return planValue, from, nil
}
