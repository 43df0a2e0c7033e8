package main

/*
#include <stdint.h>
*/
import "C"

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// prepared is an operation that was checked and made ready once, to be run with new addresses again
// and again (C10).
type prepared struct {
	build func() (*operation, error) // a new instance
	host  kernel.Backend             // nil: a device's
	dev   deviceOp
	spans []span
	from  int // the first tensor that is written

	mu   sync.Mutex
	idle []*operation // instances that no run uses
}

// deviceOp is a launch that was made ready: asynchronous on the stream, no allocation, no wait.
type deviceOp interface {
	Run(addrs []uintptr, stream uintptr) error
}

func (p *prepared) close() error { return nil }

// span says which bytes a tensor reaches from the address of its element [0, …, 0].
type span struct {
	lo, n int // n = 0: none
	size  int // of an element
}

type opReply struct {
	Op      int64 `json:"op"`
	Scratch int   `json:"scratch"` // bytes on the device, after the last tensor
}

// newOp prepares an operation. A device's may have to compile.
func newOp(_ context, a *opArgs) (any, error) {
	r, err := prepare(a.build, a.Backend, a.Device)
	if err != nil {
		return nil, err
	}
	return made{r, func() { handles.remove(r.Op) }}, nil
}

func prepare(build func() (*operation, error), backend string, device int) (r opReply, err error) {
	p := &prepared{build: build}
	o, err := build()
	if err != nil {
		return r, err
	}
	if err := o.op.Check(); err != nil {
		return r, err
	}
	if backend == "cuda" {
		if p.dev, r.Scratch, err = prepareDevice(device, o); err != nil {
			return r, err
		}
	} else {
		if p.host, err = host(backend); err != nil {
			return r, err
		}
		p.idle = append(p.idle, o)
	}
	if p.from = o.results; p.from == 0 {
		p.from = len(o.tensors)
	}
	for _, t := range o.tensors {
		reachValue, err := reach(t)
		if err != nil {
			return r, err
		}
		p.spans = append(p.spans, reachValue)
	}
	r.Op = handles.put(p)
	return r, nil
}

// reach is the span of a tensor.
func reach(t *kernel.Tensor) (span, error) {
	s := span{size: t.DType.Size()}
	if s.size == 0 {
		return s, robocache.Unsupported("op", nil, "unsupported dtype").
			Expected("a type of fixed size", t.DType.String())
	}
	lo, hi := 0, 0
	for axis, d := range t.Shape {
		if d == 0 {
			return s, nil
		}
		n, step := uint64(d-1), t.Step(axis)
		h, l := bits.Mul64(n, uint64(max(step, -step)))
		if h != 0 || l > 1<<58 || hi-lo > 1<<58 {
			return s, robocache.Misuse("op", nil, "length mismatch: strides reach beyond all memory").
				Expected("a tensor", fmt.Sprint(t.Shape, t.Stride))
		}
		if step < 0 {
			lo -= int(l)
		} else {
			hi += int(l)
		}
	}
	s.lo, s.n = lo*s.size, (hi+1-lo)*s.size
	return s, nil
}

// robocache_op_run runs a prepared op on the memory at the addresses, in the order of its tensors.
// Host ops are done when it returns; device ops are on their way on the stream.
//
//export robocache_op_run
func robocache_op_run(
	op C.int64_t,
	addrs *C.int64_t,
	n C.int64_t,
	stream C.int64_t,
	out **C.char,
) (status C.int32_t) {
	err := border(func() error {
		p, err := lookup[*prepared](int64(op))
		if err != nil {
			return err
		}
		return p.run(unsafe.Slice((*uintptr)(unsafe.Pointer(addrs)), int(n)), uintptr(stream))
	})
	switch {
	case err == nil:
		return statusDone
	case out == nil: // only the status is wanted
		_, status = describe(err)
		return status
	}
	return fail(out, err)
}

func (p *prepared) run(addrs []uintptr, stream uintptr) error {
	if len(addrs) != len(p.spans) {
		return misuse("op", fmt.Sprintf("%d addresses, expected %d", len(addrs), len(p.spans)))
	}
	if p.dev != nil {
		if p.near(addrs) {
			if err := p.apart(addrs); err != nil {
				return err
			}
		}
		return p.dev.Run(addrs, stream)
	}
	o, err := p.take()
	if err != nil {
		return err
	}
	for i, t := range o.tensors {
		s := &p.spans[i]
		if s.n == 0 {
			continue
		}
		if addrs[i] == 0 {
			return misuse("op", fmt.Sprintf("tensor %d has no address", i))
		}
		t.Data = unsafe.Slice((*byte)(foreign(addrs[i]+uintptr(s.lo))), s.n)
		t.Base = -s.lo / s.size
	}
	err = p.host.Run(o.op)
	p.give(o)
	return err
}

// near says whether a result lies within the reach of another tensor: then it may be the same
// memory.
func (p *prepared) near(addrs []uintptr) bool {
	for r := p.from; r < len(addrs); r++ {
		lo := addrs[r] + uintptr(p.spans[r].lo)
		hi := lo + uintptr(p.spans[r].n)
		for i := range r {
			from := addrs[i] + uintptr(p.spans[i].lo)
			if from < hi && lo < from+uintptr(p.spans[i].n) {
				return true
			}
		}
	}
	return false
}

// apart proves that no result shares memory with another tensor; interleaved ones do not. The
// host's back ends prove it themselves.
func (p *prepared) apart(addrs []uintptr) error {
	o, err := p.build()
	if err != nil {
		return err
	}
	for i, t := range o.tensors {
		t.Addr = addrs[i]
	}
	return o.op.Check()
}

// foreign is memory of the client's, which the garbage collector does not know.
func foreign(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// take gives an instance that no other run uses.
func (p *prepared) take() (*operation, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		o := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return o, nil
	}
	p.mu.Unlock()
	return p.build()
}

// give takes it back. It forgets its memory: the client's may be freed, and its addresses be Go's
// next.
func (p *prepared) give(o *operation) {
	for _, t := range o.tensors {
		t.Data = nil
	}
	p.mu.Lock()
	p.idle = append(p.idle, o)
	p.mu.Unlock()
}
