package main

/*
#include <stdint.h>
#include "batch.h"
*/
import "C"

import (
	stdcontext "context"
	"errors"
	"io"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// lastBatch is the batch that was told last, until the next is taken.
type lastBatch struct {
	batch *C.robocache_batch
	taken C.robocache_taken
}

// awaited says that a batch was told of which nothing was heard since.
func (b *lastBatch) awaited() bool {
	return b.batch != nil && atomic.LoadInt32((*int32)(unsafe.Pointer(&b.batch.arrived))) == 0
}

// settled forgets a batch that arrived.
func (b *lastBatch) settled() {
	if b.batch != nil {
		C.robocache_batch_forget(b.batch)
		b.batch = nil
	}
}

// takeBack ends the interest in the last batch. One that did not arrive goes back; its few bytes of bookkeeping stay, because its
// client may yet ask for its tensors, and is to be told that there are none.
func (b *lastBatch) takeBack() {
	if b.batch != nil && C.robocache_batch_settle(b.batch, 2) == 0 {
		C.robocache_batch_forget(b.batch)
	}
	b.batch = nil
}

// lent is a loader's batch with the client. Its tensors go back in groups: what shares a buffer together, each large one alone.
type lent struct {
	b      *loader.Batch
	groups []int32 // a tensor each
	left   atomic.Int32
}

// ownBuffer is the size from which on the loader gives a tensor a buffer of its own.
const ownBuffer = 128 << 10

func newLent(b *loader.Batch) *lent {
	n := &lent{b: b, groups: make([]int32, len(b.Tensors))}
	shared, groups := int32(-1), int32(0)
	for i := range b.Tensors {
		large := len(b.Tensors[i].Data) >= ownBuffer
		if !large && shared >= 0 {
			n.groups[i] = shared
			continue
		}
		if !large {
			shared = groups
		}
		n.groups[i] = groups
		groups++
	}
	n.left.Store(groups)
	return n
}

func (n *lent) close() error { n.b.Release(); return nil }

// giveBack gives a group back; true for the last one.
func (n *lent) giveBack(group int32) bool {
	for i, g := range n.groups {
		if g == group {
			n.b.ReleaseTensor(i)
		}
	}
	return n.left.Add(-1) == 0
}

// robocache_release_group is called by the deleters of tensors, from any thread of the client.
//
//export robocache_release_group
func robocache_release_group(handle C.int64_t, group C.int32_t) {
	n, err := lookup[*lent](int64(handle), "release")
	if err == nil && n.giveBack(int32(group)) {
		handles.remove(int64(handle))
	}
}

//export robocache_loader_take
func robocache_loader_take(handle, epoch C.int64_t, timeoutMS C.int32_t, taken *C.robocache_taken, out **C.char) (status C.int32_t) {
	defer func() {
		if r := recover(); r != nil {
			status = fail(out, panicked(r))
		}
	}()
	l, err := loaderOf(handle)
	if err == nil {
		err = l.take(int64(epoch), int(timeoutMS), taken)
	}
	switch {
	case err == nil:
		return statusDone
	case err == errLate:
		return statusPending
	case errors.Is(err, io.EOF):
		return statusEnd
	}
	return fail(out, err)
}

// take gives the last batch again where it did not arrive, else the next. That an epoch is over it says as often as asked.
func (l *loading) take(epoch int64, timeoutMS int, taken *C.robocache_taken) error {
	l.next.Lock()
	defer l.next.Unlock()
	l.mu.Lock()
	if l.last.awaited() {
		*taken = l.last.taken
		l.mu.Unlock()
		return nil
	}
	l.last.settled()
	over := l.ended != nil && *l.ended == epoch
	l.mu.Unlock()
	if over {
		return io.EOF
	}
	before := l.l.Standing()
	b, ok, err := l.l.TryNext()
	switch {
	case err == nil && !ok && timeoutMS == 0:
		return errLate
	case err == nil && !ok:
		p := newPatience(timeoutMS)
		defer p.stop()
		b, err = l.l.Next(p)
	}
	if err == io.EOF {
		ended := l.l.Epoch() - 1
		l.mu.Lock()
		l.ended = &ended
		l.mu.Unlock()
	}
	if err != nil {
		return err
	}
	if err := l.texts.write(b); err != nil {
		b.Release()
		return err
	}
	t, err := lend(b, l.texts.out, l.raw)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.before[l.seq%int64(len(l.before))] = before
	t.seq = C.int64_t(l.seq)
	l.last = lastBatch{t.batch, t}
	*taken = t
	return nil
}

// lend makes the C side of a batch.
func lend(b *loader.Batch, text []byte, raw bool) (C.robocache_taken, error) {
	n := newLent(b)
	tensors, group := b.Tensors, n.groups
	if raw {
		// What is moved to a device is whole buffers.
		buffers, owner := b.Buffers()
		tensors, group = buffers, make([]int32, len(buffers))
		for i, o := range owner {
			group[i] = n.groups[o]
		}
		n.left.Store(int32(len(buffers)))
	}
	dims := 0
	for i := range tensors {
		dims += len(tensors[i].Shape)
	}
	h := int64(0)
	if len(tensors) > 0 {
		h = handles.put(n)
	} else {
		b.Release()
	}
	var shapes *C.int64_t
	groups := n.left.Load()
	c := C.robocache_batch_new(C.int64_t(h), C.int32_t(len(tensors)), C.int32_t(groups), C.int64_t(dims), C.int64_t(len(text)), &shapes)
	if c == nil {
		handles.remove(h)
		b.Release()
		return C.robocache_taken{}, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "loader", Msg: "no memory for the description of a batch"}
	}
	all, at := unsafe.Slice((*int64)(unsafe.Pointer(shapes)), dims), 0
	list := unsafe.Slice(c.list, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		code, bits := dlType(t.DType)
		d := &list[i]
		*d = C.struct_robocache_tensor{batch: c, group: C.int32_t(group[i])}
		d.dl.dl_tensor.data = unsafe.Pointer(unsafe.SliceData(t.Data))
		d.dl.dl_tensor.device.device_type = 1 // kDLCPU; page-locked memory too: torch asks the driver about it
		d.dl.dl_tensor.ndim = C.int32_t(len(t.Shape))
		d.dl.dl_tensor.dtype = C.DLDataType{code: C.uint8_t(code), bits: C.uint8_t(bits), lanes: 1}
		if len(t.Shape) > 0 {
			d.dl.dl_tensor.shape = (*C.int64_t)(unsafe.Pointer(&all[at]))
		}
		d.dl.deleter = C.robocache_deleter
		for _, v := range t.Shape {
			all[at] = int64(v)
			at++
		}
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(c.text)), len(text)), text)
	return C.robocache_taken{rows: C.int64_t(b.Rows), epoch: C.int64_t(b.Epoch), position: C.int64_t(b.Position), tensors: C.int64_t(len(tensors)),
		batch: c, text: c.text, text_bytes: C.int64_t(len(text))}, nil
}

// dlType is DLPack's code and width of a type.
func dlType(d robocache.DType) (code, bits int) {
	bits = d.Size() * 8
	switch d {
	case robocache.Bool:
		return 6, bits
	case robocache.BFloat16:
		return 4, bits
	case robocache.Float16, robocache.Float32, robocache.Float64:
		return 2, bits
	case robocache.Uint8, robocache.Uint16, robocache.Uint32, robocache.Uint64:
		return 1, bits
	}
	return 0, bits
}

var errLate = errors.New("not finished in time")

// patience is a context that ends after some time, and by nothing else: its error cannot be one of the data's store.
type patience struct {
	stdcontext.Context
	done  chan struct{}
	timer *time.Timer
}

// newPatience waits for ms milliseconds; below 0 for ever.
func newPatience(ms int) *patience {
	p := &patience{Context: stdcontext.Background(), done: make(chan struct{})}
	if ms >= 0 {
		p.timer = time.AfterFunc(time.Duration(ms)*time.Millisecond, func() { close(p.done) })
	}
	return p
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *patience) Done() <-chan struct{} { return p.done }

func (p *patience) Err() error {
	select {
	case <-p.done:
		return errLate
	default:
		return nil
	}
}
