package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// at is the byte offset in Data of the element with these indices; missing trailing ones are 0.
func (t *Tensor) at(index ...int) int {
	o := t.Base
	for a, i := range index {
		o += i * t.Step(a)
	}
	return o * t.DType.Size()
}

// int64At reads an int64 tensor of one axis.
func (t *Tensor) int64At(i int) int64 { return int64(le.Uint64(t.Data[t.at(i):])) }

// Float reads a floating-point element, or an unsigned integer of 16 bits.
func (t *Tensor) Float(index ...int) float64 { return t.float64At(t.at(index...)) }

// float64At reads a floating-point element, or an unsigned integer of 16 bits, at a byte offset; it
// is exact.
func (t *Tensor) float64At(o int) float64 {
	switch d := t.Data[o:]; t.DType {
	case robocache.Float64:
		return math.Float64frombits(le.Uint64(d))
	case robocache.Float16:
		return float64(Float16to32(le.Uint16(d)))
	case robocache.BFloat16:
		return float64(BFloat16to32(le.Uint16(d)))
	case robocache.Uint16:
		return float64(le.Uint16(d))
	}
	return float64(math.Float32frombits(le.Uint32(t.Data[o:])))
}

// put writes a whole number or a float as the tensor's type, at a byte offset: what results of
// voxels are made of.
func (t *Tensor) put(o int, x float64) {
	switch d := t.Data[o:]; t.DType {
	case robocache.Float32:
		le.PutUint32(d, math.Float32bits(float32(x)))
	case robocache.Int32:
		le.PutUint32(d, uint32(int32(x)))
	case robocache.Int64:
		le.PutUint64(d, uint64(int64(x)))
	default:
		d[0] = byte(x)
	}
}

// Elements visits the elements in C order: the byte of Data, and the index.
func (t *Tensor) Elements(f func(o int, index []int) error) error {
	index := make([]int, len(t.Shape))
	for range t.Len() {
		o := t.Base
		for axis, i := range index {
			o += i * t.Step(axis)
		}
		if err := f(o*t.DType.Size(), index); err != nil {
			return err
		}
		for axis := len(index) - 1; axis >= 0; axis-- {
			if index[axis]++; index[axis] < t.Shape[axis] {
				break
			}
			index[axis] = 0
		}
	}
	return nil
}
