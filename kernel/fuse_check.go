package kernel

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Check rejects shapes, types and strides that do not fit, and results that share memory with an
// input. Every back end calls it first. It reads no memory. Each back end checks what depends on
// values: the order and range of times, lengths, offsets, and targets outside the data under
// ErrorEdge.
func (op *FuseOp) Check() (err error) {
	name := op.opName()
	if len(op.Series) == 0 {
		return misuseError(name, "no stream", "at least one", "none")
	}
	batch := -1
	cols := 0
	for i := range op.Series {
		s := &op.Series[i]
		err := func() error {
			if err := s.checkSeries(name, op.Clock, &batch); err != nil {
				return err
			}
			if err := s.Rule.checkValues(name, s.columnCount(), s.Values.DType, op.Out.DType,
				&s.Epilogue); err != nil {
				return err
			}
			if err := s.Epilogue.checkEpilogue(name, s.columnCount()); err != nil {
				return err
			}
			return s.Epilogue.checkSamples(name, batch)
		}()
		if err != nil { // errorPlace allocates a map, so it is called only for an error
			return robocache.At(err, s.errorPlace(i, len(op.Series)))
		}
		// The sum can overflow only if there are no rows; then any number of columns is legal.
		if cols > math.MaxInt-s.columnCount() {
			return robocache.ResourceLimit(name, nil, "more elements than can be counted").
				Expected("at most 2^63 columns", "more")
		}
		cols += s.columnCount()
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
	if err := checkOptional(name, "valid", op.Valid, robocache.Uint8, batch, rows,
		len(op.Series)); err != nil {
		return err
	}
	if err := checkOptional(name, "counts", op.Counts, robocache.Int64, 2); err != nil {
		return err
	}
	if err := op.Clock.checkClock(name, op.Epsilon); err != nil {
		return err
	}
	return checkTensors(op)
}

// opName returns the name of the operation in errors.
func (op *FuseOp) opName() string {
	if len(op.Series) == 1 {
		return "resample"
	}
	return "fuse"
}

// Check rejects shapes, types and strides that do not fit, and results that share memory with an
// input. It reads no memory.
func (op *FuseGradOp) Check() (err error) {
	opName := op.opName()
	s := &op.Series
	batch := -1
	if err := s.checkSeries(opName, op.Clock, &batch); err != nil {
		return robocache.At(err, s.errorPlace(0, 1))
	}
	unsupported := func(msg, want, got string) error {
		return robocache.At(
			robocache.Unsupported(opName, nil, "%s", msg).Expected(want, got),
			s.errorPlace(0, 1),
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
	case s.Epilogue.changesValues():
		return unsupported("no gradient through an epilogue", "none", "one")
	}
	rows, err := checkTargets(opName, &op.Targets, batch, op.Clock)
	if err != nil {
		return err
	}
	type tensorCheck struct {
		name string
		*Tensor
		want []int
	}
	checks := []tensorCheck{
		{"out", &op.Out, []int{batch, rows, s.columnCount()}},
		{"grad", &op.Grad, s.Values.Shape},
	}
	for _, t := range checks {
		if err := t.Check(opName, t.name); err != nil {
			return err
		}
		if !slices.Equal(t.Shape, t.want) {
			return shapeError(opName, t.name, t.want, t.Shape)
		}
		if !t.DType.Float() {
			return misuseError(
				opName,
				"unsupported dtype of "+t.name,
				"a floating-point type",
				t.DType.String(),
			)
		}
	}
	if err := op.Clock.checkClock(opName, op.Epsilon); err != nil {
		return err
	}
	return checkTensors(op)
}

// opName implements Op.
func (op *FuseGradOp) opName() string { return "fuse_grad" }

// errorPlace returns the place of stream i of n for errors: its name, else its number, or nil if it
// is the only stream.
func (s *Series) errorPlace(i, n int) robocache.Where {
	switch {
	case s.Name != "":
		return robocache.Where{"stream": s.Name}
	case n > 1:
		return robocache.Where{"stream": i}
	}
	return nil
}

// columnCount returns D, the number of columns.
func (s *Series) columnCount() int { return s.Values.Shape[len(s.Values.Shape)-1] }

// checkSeries rejects shapes and types of a stream that do not fit. *batch is -1 before the first
// stream, which sets it; all other streams must have the same batch size.
func (s *Series) checkSeries(op string, clock Clock, batch *int) error {
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
	if s.Lengths != nil && s.Offsets != nil {
		return misuseError(op, "lengths and offsets", "one of them: padded or ragged", "both")
	}
	n, rows, err := s.checkValueShape(op)
	if err != nil {
		return err
	}
	if *batch < 0 {
		*batch = n
	}
	if n != *batch {
		return batchError(op, "batch of the values", *batch, n)
	}
	if rows > math.MaxInt32 && s.Offsets == nil {
		return tooManySamples(op, rows)
	}
	if err := s.checkTimes(op, clock, *batch, rows); err != nil {
		return err
	}
	if err := s.checkLengths(op, *batch); err != nil {
		return err
	}
	if s.Rule.Mode == ModeSum {
		return sumUnsupported(op)
	}
	if err := s.Rule.checkTime(); err != nil {
		return err
	}
	if clock == AsGiven && s.Rule.Mode == Mean {
		return misuseError(
			op,
			"Invalid mode: mean has no meaning for times as given",
			"another mode, or times in ns",
			"mean",
		)
	}
	return nil
}

// checkValueShape returns the batch size and the number of samples: of each entry, or of all
// entries if they are ragged.
func (s *Series) checkValueShape(op string) (batch, rows int, err error) {
	values, times := s.Values.Shape, s.Times.Shape
	if s.Offsets == nil {
		if len(values) != 3 {
			return 0, 0, misuseError(
				op,
				"values must have shape [B, S, D]",
				"3 extents",
				fmt.Sprint(values),
			)
		}
		return values[0], values[1], nil
	}
	if len(values) != 2 || len(times) != 1 {
		return 0, 0, misuseError(
			op,
			"ragged values must have shape [sum of S, D], and times [sum of S]",
			"2 and 1 extents",
			fmt.Sprintf("%v, %v", values, times),
		)
	}
	offsets := s.Offsets.Shape
	isList := len(offsets) == 1 && offsets[0] >= 1
	if s.Offsets.DType != robocache.Int64 || !isList {
		return 0, 0, misuseError(
			op,
			"offsets must have shape [B+1]",
			"int64 [B+1]",
			s.Offsets.DType.String()+" "+fmt.Sprint(offsets),
		)
	}
	return offsets[0] - 1, values[0], nil
}

// checkTimes rejects timestamps that do not fit the batch and the samples.
func (s *Series) checkTimes(op string, clock Clock, batch, rows int) error {
	times := s.Times.Shape
	if len(times) != 1 && len(times) != 2 {
		return misuseError(
			op,
			"times must have shape [S] or [B, S]",
			"1 or 2 extents",
			fmt.Sprint(times),
		)
	}
	if len(times) == 2 && times[0] != batch {
		return batchError(op, "batch of the timestamps", batch, times[0])
	}
	if got := times[len(times)-1]; got != rows {
		return misuseError(
			op,
			"Source length mismatch (length of data and of its timestamps)",
			strconv.Itoa(rows)+" timestamps",
			strconv.Itoa(got),
		)
	}
	return checkTimeType(op, "times", s.Times.DType, clock)
}

// checkLengths rejects lengths that are not one int64 per entry.
func (s *Series) checkLengths(op string, batch int) error {
	if s.Lengths == nil {
		return nil
	}
	isInt := s.Lengths.DType == robocache.Int64
	shape := s.Lengths.Shape
	switch {
	case isInt && slices.Equal(shape, []int{batch}):
		return nil
	case isInt && len(shape) == 1:
		return batchError(op, "batch of the lengths", batch, shape[0])
	}
	return misuseError(
		op,
		"lengths must have shape [B]",
		fmt.Sprintf("int64 [%d]", batch),
		s.Lengths.DType.String()+" "+fmt.Sprint(shape),
	)
}

// tooManySamples returns the error for more samples than an int32 can number.
func tooManySamples(op string, rows int) error {
	return robocache.ResourceLimit(op, nil, "too many samples").
		Expected("at most 2^31-1", strconv.Itoa(rows))
}

// batchError returns the error for a tensor whose batch size differs. The text what names the
// tensor.
func batchError(op, what string, want, got int) error {
	return robocache.Misuse(op, nil, "Batch size mismatch (%s)", what).
		Expected(strconv.Itoa(want), strconv.Itoa(got)).
		WithHint("Times [S] and targets [T] are shared by the batch. " +
			"Expand the others to avoid a batch size mismatch.")
}

// checkTimeType rejects a type that times cannot have under the clock.
func checkTimeType(op, name string, d robocache.DType, clock Clock) error {
	switch {
	case d == robocache.Float32,
		d == robocache.Float64,
		d == robocache.Int64 && clock == Nanoseconds:
		return nil
	case clock == AsGiven:
		return misuseError(
			op,
			"unsupported dtype of "+name,
			"float64 or float32 seconds for times as given",
			d.String(),
		)
	}
	return misuseError(
		op,
		"unsupported dtype of "+name,
		"int64 ns, or float64 or float32 seconds",
		d.String(),
	)
}

// checkTargets rejects targets whose shape or type does not fit. It returns the number of targets
// per entry.
func checkTargets(op string, t *Tensor, batch int, clock Clock) (rows int, err error) {
	if err := t.Check(op, "targets"); err != nil {
		return rows, err
	}
	if len(t.Shape) != 1 && len(t.Shape) != 2 {
		return rows, misuseError(
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

// checkOptional rejects a tensor whose type is not d or whose shape is not want. A nil tensor is
// accepted.
func checkOptional(op, name string, t *Tensor, d robocache.DType, want ...int) error {
	if t == nil {
		return nil
	}
	if err := t.Check(op, name); err != nil {
		return err
	}
	if t.DType != d {
		return misuseError(op, "unsupported dtype of "+name, d.String(), t.DType.String())
	}
	if !slices.Equal(t.Shape, want) {
		return shapeError(op, name, slices.Clone(want), t.Shape)
	}
	return nil
}

// checkClock rejects an unknown clock, and an epsilon that is negative or not finite.
func (c Clock) checkClock(op string, epsilon float64) error {
	if c > AsGiven {
		return misuseError(op, "unknown clock", "Nanoseconds or AsGiven", strconv.Itoa(int(c)))
	}
	if !(epsilon >= 0) || math.IsInf(epsilon, 0) {
		return misuseError(
			op,
			"invalid epsilon",
			"a finite number of seconds ≥ 0",
			fmt.Sprint(epsilon),
		)
	}
	return nil
}
