package kernel

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Check proves shapes, types, strides, and that nothing is written where it is read. Every back end
// calls it first; it looks at no memory. What depends on values is the back end's: the order and
// range of times, lengths, offsets, and targets outside under ErrorEdge.
func (op *FuseOp) Check() (err error) {
	name := op.name()
	if len(op.Series) == 0 {
		return misuse(name, "no stream", "at least one", "none")
	}
	batch, cols := -1, 0
	for i := range op.Series {
		s := &op.Series[i]
		err := func() error {
			if err := s.check(name, op.Clock, &batch); err != nil {
				return err
			}
			if err := s.Rule.checkValues(
				name,
				s.cols(),
				s.Values.DType,
				op.Out.DType,
				&s.Epilogue,
			); err != nil {
				return err
			}
			if err := s.Epilogue.check(name, s.cols()); err != nil {
				return err
			}
			return s.Epilogue.checkSamples(name, batch)
		}()
		if err != nil { // where makes a map: of an error alone
			return robocache.At(err, s.where(i, len(op.Series)))
		}
		if cols > math.MaxInt-s.cols() { // of no rows: then any extent is legal
			return robocache.ResourceLimit(name, nil, "more elements than can be counted").
				Expected("at most 2^63 columns", "more")
		}
		cols += s.cols()
	}
	rows, err := checkTargets(name, &op.Targets, batch, op.Clock)
	if err != nil {
		return err
	}
	if err := op.Out.Check(name, "out"); err != nil {
		return err
	}
	if !slices.Equal(op.Out.Shape, []int{batch, rows, cols}) {
		return shapeError(name, "out", []int{batch, rows, cols}, op.Out.Shape)
	}
	if err := checkOptional(
		name,
		"valid",
		op.Valid,
		robocache.Uint8,
		batch,
		rows,
		len(op.Series),
	); err != nil {
		return err
	}
	if err := checkOptional(name, "counts", op.Counts, robocache.Int64, 2); err != nil {
		return err
	}
	if err := op.Clock.check(name, op.Epsilon); err != nil {
		return err
	}
	return checkTensors(op)
}

// name is the operation as errors call it.
func (op *FuseOp) name() string {
	if len(op.Series) == 1 {
		return "resample"
	}
	return "fuse"
}

// Check proves shapes, types, strides, and that nothing is written where it is read; it looks at no
// memory.
func (op *FuseGradOp) Check() (err error) {
	name := op.name()
	s := &op.Series
	batch := -1
	if err := s.check(name, op.Clock, &batch); err != nil {
		return robocache.At(err, s.where(0, 1))
	}
	unsupported := func(msg, want, got string) error {
		return robocache.At(
			robocache.Unsupported(name, nil, "%s", msg).Expected(want, got),
			s.where(0, 1),
		)
	}
	switch {
	case s.Rule.Mode >= Slerp:
		return unsupported(
			"no gradient of this mode",
			"linear, previous, next or nearest",
			s.Rule.Mode.String(),
		)
	case !s.Values.DType.Float():
		return unsupported(
			"unsupported dtype: no gradient of integers",
			"a floating-point type",
			s.Values.DType.String(),
		)
	case s.Epilogue.computes():
		return unsupported("no gradient through an epilogue", "none", "one")
	}
	rows, err := checkTargets(name, &op.Targets, batch, op.Clock)
	if err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		*Tensor
		want []int
	}{{"out", &op.Out, []int{batch, rows, s.cols()}}, {"grad", &op.Grad, s.Values.Shape}} {
		if err := t.Check(name, t.name); err != nil {
			return err
		}
		if !slices.Equal(t.Shape, t.want) {
			return shapeError(name, t.name, t.want, t.Shape)
		}
		if !t.DType.Float() {
			return misuse(
				name,
				"unsupported dtype of "+t.name,
				"a floating-point type",
				t.DType.String(),
			)
		}
	}
	if err := op.Clock.check(name, op.Epsilon); err != nil {
		return err
	}
	return checkTensors(op)
}

func (op *FuseGradOp) name() string { return "fuse_grad" }

func (s *Series) where(i, n int) robocache.Where {
	switch {
	case s.Name != "":
		return robocache.Where{"stream": s.Name}
	case n > 1:
		return robocache.Where{"stream": i}
	}
	return nil
}

// cols is D.
func (s *Series) cols() int { return s.Values.Shape[len(s.Values.Shape)-1] }

// check proves the shapes and types of a stream; *batch is set by the first stream (-1 before it),
// and is every other's too.
func (s *Series) check(op string, clock Clock, batch *int) error {
	for _, t := range []struct {
		name string
		*Tensor
	}{{"values", &s.Values}, {"times", &s.Times}, {"lengths", s.Lengths}, {"offsets", s.Offsets}} {
		if t.Tensor == nil {
			continue
		}
		if err := t.Check(op, t.name); err != nil {
			return err
		}
	}
	values, times := s.Values.Shape, s.Times.Shape
	if s.Lengths != nil && s.Offsets != nil {
		return misuse(op, "lengths and offsets", "one of them: padded or ragged", "both")
	}
	n, rows := 0, 0
	switch {
	case s.Offsets != nil:
		if len(values) != 2 || len(times) != 1 {
			return misuse(
				op,
				"ragged values must have shape [sum of S, D], and times [sum of S]",
				"2 and 1 extents",
				fmt.Sprintf("%v, %v", values, times),
			)
		}
		if s.Offsets.DType != robocache.Int64 || len(s.Offsets.Shape) != 1 ||
			s.Offsets.Shape[0] < 1 {
			return misuse(
				op,
				"offsets must have shape [B+1]",
				"int64 [B+1]",
				s.Offsets.DType.String()+" "+fmt.Sprint(s.Offsets.Shape),
			)
		}
		n, rows = s.Offsets.Shape[0]-1, values[0]
	case len(values) != 3:
		return misuse(op, "values must have shape [B, S, D]", "3 extents", fmt.Sprint(values))
	default:
		n, rows = values[0], values[1]
	}
	if *batch < 0 {
		*batch = n
	}
	if n != *batch {
		return batchError(op, "batch of the values", *batch, n)
	}
	if rows > math.MaxInt32 && s.Offsets == nil {
		return tooMany(op, rows)
	}
	if len(times) != 1 && len(times) != 2 {
		return misuse(
			op,
			"times must have shape [S] or [B, S]",
			"1 or 2 extents",
			fmt.Sprint(times),
		)
	}
	if len(times) == 2 && times[0] != *batch {
		return batchError(op, "batch of the timestamps", *batch, times[0])
	}
	if got := times[len(times)-1]; got != rows {
		return misuse(
			op,
			"Source length mismatch (length of data and of its timestamps)",
			strconv.Itoa(rows)+" timestamps",
			strconv.Itoa(got),
		)
	}
	if err := checkTimeType(op, "times", s.Times.DType, clock); err != nil {
		return err
	}
	if s.Lengths != nil &&
		(s.Lengths.DType != robocache.Int64 || !slices.Equal(s.Lengths.Shape, []int{*batch})) {
		if len(s.Lengths.Shape) == 1 && s.Lengths.DType == robocache.Int64 {
			return batchError(op, "batch of the lengths", *batch, s.Lengths.Shape[0])
		}
		return misuse(
			op,
			"lengths must have shape [B]",
			fmt.Sprintf("int64 [%d]", *batch),
			s.Lengths.DType.String()+" "+fmt.Sprint(s.Lengths.Shape),
		)
	}
	if s.Rule.Mode == ModeSum {
		return notSummed(op)
	}
	if err := s.Rule.checkTime(); err != nil {
		return err
	}
	if clock == AsGiven && s.Rule.Mode == Mean {
		return misuse(
			op,
			"Invalid mode: mean has no meaning for times as given",
			"another mode, or times in ns",
			"mean",
		)
	}
	return nil
}

func tooMany(op string, rows int) error {
	return robocache.ResourceLimit(op, nil, "too many samples").
		Expected("at most 2^31-1", strconv.Itoa(rows))
}

func batchError(op, what string, want, got int) error {
	return robocache.Misuse(op, nil, "Batch size mismatch (%s)", what).
		Expected(strconv.Itoa(want), strconv.Itoa(got)).
		WithHint("times [S] and targets [T] are shared by the batch; any other batch size mismatch is yours to expand")
}

func checkTimeType(op, name string, d robocache.DType, clock Clock) error {
	switch {
	case d == robocache.Float32,
		d == robocache.Float64,
		d == robocache.Int64 && clock == Nanoseconds:
		return nil
	case clock == AsGiven:
		return misuse(
			op,
			"unsupported dtype of "+name,
			"float64 or float32 seconds for times as given",
			d.String(),
		)
	}
	return misuse(
		op,
		"unsupported dtype of "+name,
		"int64 ns, or float64 or float32 seconds",
		d.String(),
	)
}

func checkTargets(op string, t *Tensor, batch int, clock Clock) (rows int, err error) {
	if err := t.Check(op, "targets"); err != nil {
		return rows, err
	}
	if len(t.Shape) != 1 && len(t.Shape) != 2 {
		return rows, misuse(
			op,
			"targets must have shape [T] or [B, T]",
			"1 or 2 extents",
			fmt.Sprint(t.Shape),
		)
	}
	if len(t.Shape) == 2 && t.Shape[0] != batch {
		return rows, batchError(op, "batch of the targets", batch, t.Shape[0])
	}
	if err := checkTimeType(op, "targets", t.DType, clock); err != nil {
		return rows, err
	}
	return t.Shape[len(t.Shape)-1], nil
}

func checkOptional(op, name string, t *Tensor, d robocache.DType, want ...int) error {
	if t == nil {
		return nil
	}
	if err := t.Check(op, name); err != nil {
		return err
	}
	if t.DType != d {
		return misuse(op, "unsupported dtype of "+name, d.String(), t.DType.String())
	}
	if !slices.Equal(t.Shape, want) {
		return shapeError(op, name, want, t.Shape)
	}
	return nil
}

func (c Clock) check(op string, epsilon float64) error {
	if c > AsGiven {
		return misuse(op, "unknown clock", "Nanoseconds or AsGiven", strconv.Itoa(int(c)))
	}
	if !(epsilon >= 0) || math.IsInf(epsilon, 0) {
		return misuse(op, "invalid epsilon", "a finite number of seconds ≥ 0", fmt.Sprint(epsilon))
	}
	return nil
}
