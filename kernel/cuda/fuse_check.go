package cuda

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// checkValues checks times, lengths and offsets before a FuseOp runs. Under ErrorEdge it also
// checks that every target lies inside the data. It copies these tensors, but not the rows, to the
// host, where the reference runs the operation on rows of 0 columns.
func (f *fuseBuilder) checkValues(addrs []uintptr, stream uintptr) error {
	from := &fetcher{l: f.l, addrs: addrs, stream: stream}
	host := kernel.FuseOp{
		Series:  slices.Clone(f.op.Series),
		Clock:   f.op.Clock,
		Epsilon: f.op.Epsilon,
		Targets: *from.fetchTensor(&f.op.Targets),
		Out:     kernel.Tensor{DType: f.op.Out.DType, Shape: []int{f.batch, f.rows, 0}},
	}
	for i := range host.Series {
		s := &host.Series[i]
		shape := slices.Clone(s.Values.Shape)
		shape[len(shape)-1] = 0
		s.Values = kernel.Tensor{DType: s.Values.DType, Shape: shape}
		s.Times = *from.fetchTensor(&f.op.Series[i].Times)
		s.Lengths = from.fetchTensor(s.Lengths)
		s.Offsets = from.fetchTensor(s.Offsets)
		s.Rule.Quats = nil
		s.Epilogue = kernel.Epilogue{}
	}
	if from.err != nil {
		return from.err
	}
	return kernel.Reference{}.Run(&host)
}

// fetcher copies tensors of a run to the host, after the stream has finished.
type fetcher struct {
	l      *Launch
	addrs  []uintptr
	stream uintptr
	waited bool
	err    error
}

// fetchTensor returns a copy of one of the operation's tensors with its strides, or nil if t is
// nil.
func (f *fetcher) fetchTensor(t *kernel.Tensor) *kernel.Tensor {
	if t == nil {
		return nil
	}
	stride := make([]int, len(t.Shape))
	for i := range stride {
		stride[i] = t.Step(i)
	}
	return f.fetchStrided(t.DType, t.Shape, stride, f.addrs[f.l.number[t]])
}

// fetchStrided copies a tensor at addr to the host, including the memory between its elements.
func (f *fetcher) fetchStrided(
	d robocache.DType,
	shape, stride []int,
	addr uintptr,
) *kernel.Tensor {
	t := &kernel.Tensor{DType: d, Shape: shape, Stride: stride}
	lo, hi := 0, 1
	for i, n := range shape {
		if n == 0 {
			return t
		}
		lo += min(0, (n-1)*stride[i])
		hi += max(0, (n-1)*stride[i])
	}
	t.Base = -lo
	t.Data = make([]byte, (hi-lo)*d.Size())
	f.fetchBytes(t.Data, addr-uintptr(t.Base*d.Size()))
	return t
}

// fetchBytes copies memory at from to b. The first call waits for the stream. After an error, it
// does nothing.
func (f *fetcher) fetchBytes(b []byte, from uintptr) {
	if f.err == nil && !f.waited {
		f.err = f.l.launcher.waitStream(f.stream)
		f.waited = true
	}
	if f.err == nil {
		f.err = f.l.launcher.copyOut(b, from, f.stream)
	}
}
