package kernel

import (
	"math"

	"github.com/goatnote-inc/robocache"
)

// byteOffset returns the byte offset in Data of the element with the given indices. Missing
// trailing indices are 0.
func (t *Tensor) byteOffset(index ...int) int {
	o := t.Base
	for a, i := range index {
		o += i * t.Step(a)
	}
	return o * t.DType.Size()
}

// int64At returns element i of an int64 tensor with one axis.
func (t *Tensor) int64At(i int) int64 { return int64(le.Uint64(t.Data[t.byteOffset(i):])) }

// Float returns a floating-point element, or an unsigned integer of 16 bits.
func (t *Tensor) Float(index ...int) float64 { return t.float64At(t.byteOffset(index...)) }

// float64At returns the floating-point element, or unsigned integer of 16 bits, at a byte offset.
// The conversion is exact.
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

// putNumber writes a whole number or a float in the tensor's type at a byte offset. The results of
// voxel operations consist of such numbers.
func (t *Tensor) putNumber(o int, x float64) {
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

// Elements calls f for each element in C order, with its byte offset in Data and its index.
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
			index[axis]++
			if index[axis] < t.Shape[axis] {
				break
			}
			index[axis] = 0
		}
	}
	return nil
}
