package cuda

import (
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// check proves times, lengths and offsets before a FuseOp, and under the policy error that every
// target lies inside the data: it brings them to the host, where the reference looks at the op
// without its values.
func (f *fuser) check(addrs []uintptr, stream uintptr) error {
	from := &fetcher{l: f.l, addrs: addrs, stream: stream}
	host := kernel.FuseOp{
		Series: slices.Clone(
			f.op.Series,
		),
		Clock:   f.op.Clock,
		Epsilon: f.op.Epsilon,
		Targets: *from.tensor(&f.op.Targets),
		Out:     kernel.Tensor{DType: f.op.Out.DType, Shape: []int{f.batch, f.rows, 0}},
	}
	for i := range host.Series {
		s := &host.Series[i]
		shape := slices.Clone(s.Values.Shape)
		shape[len(shape)-1] = 0
		s.Values = kernel.Tensor{DType: s.Values.DType, Shape: shape}
		s.Times = *from.tensor(&f.op.Series[i].Times)
		s.Lengths = from.tensor(s.Lengths)
		s.Offsets = from.tensor(s.Offsets)
		s.Rule.Quats, s.Epilogue = nil, kernel.Epilogue{}
	}
	if from.err != nil {
		return from.err
	}
	return kernel.Reference{}.Run(&host)
}

// fetcher copies what a run is given to the host, once the stream has come so far.
type fetcher struct {
	l      *Launch
	addrs  []uintptr
	stream uintptr
	waited bool
	err    error
}

// tensor is a copy of one of the op's tensors, with its strides; nil of nil.
func (f *fetcher) tensor(t *kernel.Tensor) *kernel.Tensor {
	if t == nil {
		return nil
	}
	stride := make([]int, len(t.Shape))
	for i := range stride {
		stride[i] = t.Step(i)
	}
	return f.strided(t.DType, t.Shape, stride, f.addrs[f.l.number[t]])
}

func (f *fetcher) strided(d robocache.DType, shape, stride []int, addr uintptr) *kernel.Tensor {
	t := &kernel.Tensor{DType: d, Shape: shape, Stride: stride}
	lo, hi := 0, 1
	for i, n := range shape {
		if n == 0 {
			return t
		}
		lo, hi = lo+min(0, (n-1)*stride[i]), hi+max(0, (n-1)*stride[i])
	}
	t.Base, t.Data = -lo, make([]byte, (hi-lo)*d.Size())
	f.read(t.Data, addr-uintptr(t.Base*d.Size()))
	return t
}

func (f *fetcher) read(b []byte, from uintptr) {
	if f.err == nil && !f.waited {
		f.err, f.waited = f.l.on.wait(f.stream), true
	}
	if f.err == nil {
		f.err = f.l.on.copyOut(b, from, f.stream)
	}
}
