package kernel

import "github.com/goatnote-inc/robocache"

// Tensor is a strided view of memory, on the host (Data) or on a device (Addr). Operations do not
// copy a tensor to make it contiguous (kernel.K8).
type Tensor struct {
	DType  robocache.DType
	Shape  []int
	Stride []int   // in elements: 0 (expanded), gaps, negative; nil = C order
	Data   []byte  // host memory, little-endian
	Base   int     // element offset of [0, …, 0] in Data
	Addr   uintptr // address of [0, …, 0] in device memory; then Data is nil
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Step returns the stride of an axis, in elements.
func (t *Tensor) Step(axis int) int {
	if t.Stride != nil {
		return t.Stride[axis]
	}
	n := 1
	for _, d := range t.Shape[axis+1:] {
		n *= d
	}
	return n
}

// Contiguous reports whether the tensor is in C order without gaps. The stride of an axis with one
// element is ignored.
func (t *Tensor) Contiguous() bool {
	n := 1
	for a := len(t.Shape) - 1; a >= 0; a-- {
		if t.Shape[a] != 1 && t.Step(a) != n {
			return false
		}
		n *= t.Shape[a]
	}
	return true
}
