package loader

import (
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// view reads bytes as elements. Tensors and scratch begin at 8-byte boundaries at least; hosts are little-endian.
func view[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

func floats32(b []byte) []float32 { return view[float32](b) }

// convert casts rows into a tensor and normalises them before the only rounding. from is to, or a reference dtype's source.
func convert(dst []byte, to robocache.DType, src []byte, from robocache.DType, norm *affine) {
	switch to {
	case robocache.Float32:
		out := floats32(dst)
		switch from {
		case robocache.Float32:
			copy(out, floats32(src))
		case robocache.Float16:
			for i, v := range view[uint16](src) {
				out[i] = kernel.Float16to32(v)
			}
		case robocache.BFloat16:
			for i, v := range view[uint16](src) {
				out[i] = kernel.BFloat16to32(v)
			}
		case robocache.Float64:
			in := view[float64](src)
			if norm != nil {
				rows(norm, in)
				norm = nil
			}
			for i, v := range in {
				out[i] = float32(v)
			}
		}
		if norm != nil {
			rows(norm, out)
		}
	case robocache.Float64:
		copy(dst, src)
		if norm != nil {
			rows(norm, view[float64](dst))
		}
	case robocache.Int64:
		out := view[int64](dst)
		switch from {
		case robocache.Int8:
			widen(out, view[int8](src))
		case robocache.Int16:
			widen(out, view[int16](src))
		case robocache.Int32:
			widen(out, view[int32](src))
		case robocache.Uint8:
			widen(out, src)
		case robocache.Uint16:
			widen(out, view[uint16](src))
		case robocache.Uint32:
			widen(out, view[uint32](src))
		default:
			copy(dst, src) // uint64 too: torch has no other way to hold it, and indices fit
		}
	default:
		copy(dst, src)
	}
}

func widen[T int8 | int16 | int32 | uint8 | uint16 | uint32](dst []int64, src []T) {
	for i, v := range src {
		dst[i] = int64(v)
	}
}
