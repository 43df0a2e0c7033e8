package kernel

import "github.com/goatnote-inc/robocache"

// Tensor is a strided view of memory, on the host (Data) or on a device (Addr). Nothing is copied
// to make it contiguous (K8).
type Tensor struct {
	DType  robocache.DType
	Shape  []int
	Stride []int   // in elements: 0 (expanded), gaps, negative; nil = C order
	Data   []byte  // host memory, little-endian
	Base   int     // element of Data that [0, …, 0] is
	Addr   uintptr // device memory: where [0, …, 0] lies; Data is nil
}

// Len is the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Step is the stride of an axis, in elements.
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

// Contiguous says whether the tensor lies in C order without gaps; axes of one element have no
// step.
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
