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

// prepared is an operation that is checked and prepared once, and then run with different addresses
// (librobocache.C10). Safe for concurrent use.
type prepared struct {
	build       func() (*operation, error) // creates a new instance
	host        kernel.Backend             // nil for a device
	dev         deviceOp
	spans       []byteSpan
	firstOutput int // index of the first output tensor

	mu   sync.Mutex
	idle []*operation // instances that no run uses
}

// deviceOp is a prepared launch. Run is asynchronous on the stream, allocates nothing and does not
// wait.
type deviceOp interface {
	Run(addrs []uintptr, stream uintptr) error
}

func (p *prepared) close() error { return nil }

// byteSpan is the range of bytes of a tensor, relative to its element [0, …, 0].
type byteSpan struct {
	lo, n int // offset and length; a length of 0 means no bytes
	size  int // bytes per element
}

type opReply struct {
	Op      int64 `json:"op"`
	Scratch int   `json:"scratch"` // device memory in bytes, passed after the last tensor
}

// newOp prepares an operation. For a device it may compile kernels.
func newOp(_ context, a *opArgs) (any, error) {
	r, err := prepareOp(a.buildOperation, a.Backend, a.Device)
	if err != nil {
		return nil, err
	}
	return revocable{r, func() { handles.remove(r.Op) }}, nil
}

func prepareOp(
	build func() (*operation, error),
	backend string,
	device int,
) (r opReply, err error) {
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
		if p.host, err = hostBackend(backend); err != nil {
			return r, err
		}
		p.idle = append(p.idle, o)
	}
	if p.firstOutput = o.firstOutput; p.firstOutput == 0 {
		p.firstOutput = len(o.tensors)
	}
	for _, t := range o.tensors {
		span, err := tensorSpan(t)
		if err != nil {
			return r, err
		}
		p.spans = append(p.spans, span)
	}
	r.Op = handles.put(p)
	return r, nil
}

// tensorSpan returns the byte span of a tensor.
func tensorSpan(t *kernel.Tensor) (byteSpan, error) {
	s := byteSpan{size: t.DType.Size()}
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
			return s, robocache.Misuse(
				"op",
				nil,
				"length mismatch: strides reach beyond all memory",
			).Expected("a tensor", fmt.Sprint(t.Shape, t.Stride))
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

// robocache_op_run runs a prepared operation on memory at the given addresses, in the order of its
// tensors. Host operations are done when it returns. Device operations are queued on the stream.
//
//export robocache_op_run
func robocache_op_run(
	op C.int64_t,
	addrs *C.int64_t,
	n C.int64_t,
	stream C.int64_t,
	out **C.char,
) (status C.int32_t) {
	err := catchPanics(func() error {
		p, err := lookupHandle[*prepared](int64(op))
		if err != nil {
			return err
		}
		return p.runWith(unsafe.Slice((*uintptr)(unsafe.Pointer(addrs)), int(n)), uintptr(stream))
	})
	switch {
	case err == nil:
		return statusDone
	case out == nil: // the client wants only the status
		_, status = describeError(err)
		return status
	}
	return writeFailure(out, err)
}

func (p *prepared) runWith(addrs []uintptr, stream uintptr) error {
	if len(addrs) != len(p.spans) {
		return misuse("op", fmt.Sprintf("%d addresses, expected %d", len(addrs), len(p.spans)))
	}
	if p.dev != nil {
		if p.mayOverlap(addrs) {
			if err := p.checkOverlap(addrs); err != nil {
				return err
			}
		}
		return p.dev.Run(addrs, stream)
	}
	o, err := p.takeInstance()
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
		t.Data = unsafe.Slice((*byte)(clientPointer(addrs[i]+uintptr(s.lo))), s.n)
		t.Base = -s.lo / s.size
	}
	err = p.host.Run(o.op)
	p.returnInstance(o)
	return err
}

// mayOverlap reports whether the span of an output overlaps the span of another tensor.
func (p *prepared) mayOverlap(addrs []uintptr) bool {
	for r := p.firstOutput; r < len(addrs); r++ {
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

// checkOverlap returns an error if an output shares memory with another tensor. Interleaved tensors
// are allowed. Host back ends do this check themselves.
func (p *prepared) checkOverlap(addrs []uintptr) error {
	o, err := p.build()
	if err != nil {
		return err
	}
	for i, t := range o.tensors {
		t.Addr = addrs[i]
	}
	return o.op.Check()
}

// clientPointer returns a pointer to memory of the client. The garbage collector does not know this
// memory.
func clientPointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// takeInstance returns an instance that no other run uses.
func (p *prepared) takeInstance() (*operation, error) {
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

// returnInstance makes an instance available again. It clears the data pointers, because the client
// may free the memory and Go may reuse its addresses.
func (p *prepared) returnInstance(o *operation) {
	for _, t := range o.tensors {
		t.Data = nil
	}
	p.mu.Lock()
	p.idle = append(p.idle, o)
	p.mu.Unlock()
}
