package kernel

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// changesValues reports whether the epilogue changes values. If it does, rows cannot be copied bit
// by bit.
func (e *Epilogue) changesValues() bool {
	return e.Unit || e.Norm != nil || e.Clip != nil || e.Augment != nil
}

// checkEpilogue rejects settings that are invalid or do not fit rows of cols columns.
func (e *Epilogue) checkEpilogue(op string, cols int) (err error) {
	if e.Plane < 0 {
		return misuseError(op, "invalid plane", "0 or more columns", strconv.Itoa(e.Plane))
	}
	if e.Norm != nil {
		if err := e.Norm.checkChannels(op, cols, max(e.Plane, 1)); err != nil {
			return err
		}
	}
	if c := e.Clip; c != nil && !(c[0] <= c[1]) {
		return misuseError(
			op,
			"invalid clip",
			"a lower and an upper end",
			fmt.Sprint(c[0], ", ", c[1]),
		)
	}
	a := e.Augment
	if a == nil {
		return nil
	}
	switch {
	case !(a.Noise >= 0) || !isFinite(float64(a.Noise)):
		return misuseError(
			op,
			"invalid noise",
			"a finite standard deviation ≥ 0",
			fmt.Sprint(a.Noise),
		)
	case !(a.Dropout >= 0 && a.Dropout <= 1):
		return misuseError(op, "invalid dropout", "a probability", fmt.Sprint(a.Dropout))
	case !isRange(a.ScaleLo, a.ScaleHi):
		return misuseError(
			op,
			"invalid scale",
			"a finite lower and upper end",
			fmt.Sprint(a.ScaleLo, ", ", a.ScaleHi),
		)
	}
	return nil
}

// isRange reports whether both ends are finite and in order.
func isRange(lo, hi float32) bool {
	return lo <= hi && isFinite(float64(lo)) && isFinite(float64(hi))
}

// checkSamples rejects Augment.Samples unless they hold one number per entry.
func (e *Epilogue) checkSamples(op string, batch int) error {
	a := e.Augment
	if a == nil || a.Samples == nil {
		return nil
	}
	if err := a.Samples.Check(op, "samples"); err != nil {
		return err
	}
	if a.Samples.DType != robocache.Int64 {
		return misuseError(op, "unsupported dtype of samples", "int64", a.Samples.DType.String())
	}
	if !slices.Equal(a.Samples.Shape, []int{batch}) {
		return batchError(op, "batch of the samples", batch, a.Samples.Len())
	}
	return nil
}

// rowEpilogue applies an Epilogue to one row at a time.
type rowEpilogue struct {
	Epilogue
	samples []int64 // sample of each entry; empty = one entry, which is sample 0
	rows    int     // rows per entry
	key     [2]uint32
	normals [tile]float32
}

// startRows prepares e for a result of the given number of rows, which are divided equally among
// the samples.
func (e *rowEpilogue) startRows(from *Epilogue, samples []int64, rows int) {
	e.Epilogue = *from
	e.samples = samples
	e.rows = rows
	if len(samples) > 0 {
		e.rows = rows / len(samples)
	}
	if from.Augment != nil {
		e.key = from.Augment.Key()
	}
}

// applyEpilogue changes the columns of a row that start at col, in the computing type. x must not
// be longer than tile.
func applyEpilogue[T float32 | float64](
	e *rowEpilogue,
	x []T,
	row, col int,
	fma func(a, b, c T) T,
) {
	if e.Unit {
		for i := range x {
			x[i] /= 255
		}
	}
	if n := e.Norm; n != nil {
		plane := max(e.Plane, 1)
		for i := range x {
			x[i] = normOne(n, x[i], (col+i)/plane%len(n.A))
		}
	}
	if e.Clip != nil {
		lo, hi := T(e.Clip[0]), T(e.Clip[1])
		for i, v := range x {
			if v < lo {
				x[i] = lo
			} else if v > hi {
				x[i] = hi
			}
		}
	}
	a := e.Augment
	if a == nil {
		return
	}
	sample := int64(0)
	if len(e.samples) > 0 {
		sample = e.samples[row/e.rows]
		row = row % e.rows
	}
	if a.Drops(e.key, sample, row) {
		clear(x)
		return
	}
	if a.ScaleLo != 0 || a.ScaleHi != 0 {
		s := T(a.Scale(e.key, sample))
		for i := range x {
			x[i] = T(x[i] * s)
		}
	}
	if a.Noise > 0 {
		g := e.normals[:len(x)]
		a.Normals(g, e.key, sample, row, col)
		for i := range x {
			x[i] = fma(T(a.Noise), T(g[i]), x[i])
		}
	}
}

// fma64 is math.FMA as an argument of generic functions.
func fma64(a, b, c float64) float64 { return math.FMA(a, b, c) }
