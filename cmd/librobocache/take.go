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

	"github.com/goatnote-inc/robocache/loader"
)

// lastBatch is the batch that was delivered last, until the next one is taken.
type lastBatch struct {
	batch *C.robocache_batch
	taken C.robocache_taken
}

// isUnacknowledged reports whether a batch was delivered and neither acknowledged nor taken back.
func (b *lastBatch) isUnacknowledged() bool {
	return b.batch != nil && atomic.LoadInt32((*int32)(unsafe.Pointer(&b.batch.arrived))) == 0
}

// forgetAcknowledged drops a batch that was acknowledged.
func (b *lastBatch) forgetAcknowledged() {
	if b.batch != nil {
		C.robocache_batch_forget(b.batch)
		b.batch = nil
	}
}

// takeBack gives up the last batch. If the client has not acknowledged it, its memory is freed. The
// few bytes of its description stay, because the client may still ask for its tensors and must then
// get none.
func (b *lastBatch) takeBack() {
	if b.batch != nil && C.robocache_batch_settle(b.batch, 2) == 0 {
		C.robocache_batch_forget(b.batch)
	}
	b.batch = nil
}

// groupsOf assigns the tensors of a batch to groups that are released together. Tensors in a shared
// buffer form one group, and each large tensor is a group.
func groupsOf(tensors []loader.Tensor) (group []int32, n int32) {
	group = make([]int32, len(tensors))
	shared := int32(-1)
	for i := range tensors {
		large := tensors[i].Alone()
		if !large && shared >= 0 {
			group[i] = shared
			continue
		}
		if !large {
			shared = n
		}
		group[i] = n
		n++
	}
	return group, n
}

// leaseBatch leases a loader's batch to the client. If raw is set, the tensors are whole buffers,
// which are moved to a device.
func leaseBatch(b *loader.Batch, text []byte, raw bool) (t C.robocache_taken, err error) {
	of, n := groupsOf(b.Tensors)
	free := make([]func(), n)
	for g := range free {
		free[g] = func() {
			for i, k := range of {
				if int(k) == g {
					b.ReleaseTensor(i)
				}
			}
		}
	}
	if n == 0 {
		b.Release()
	}
	tensors, group := b.Tensors, of
	if raw {
		buffers, owner := b.Buffers()
		tensors, group = buffers, make([]int32, len(buffers))
		for i, o := range owner {
			group[i] = of[o]
		}
	}
	c, err := leaseTensors(tensors, group, free, text)
	if err != nil {
		return t, err
	}
	return C.robocache_taken{
		rows:       C.int64_t(b.Rows),
		epoch:      C.int64_t(b.Epoch),
		position:   C.int64_t(b.Position),
		tensors:    C.int64_t(len(tensors)),
		batch:      c,
		text:       c.text,
		text_bytes: C.int64_t(len(text)),
	}, nil
}

//export robocache_loader_take
func robocache_loader_take(
	handle, epoch C.int64_t,
	timeoutMS C.int32_t,
	taken *C.robocache_taken,
	out **C.char,
) (status C.int32_t) {
	err := catchPanics(func() error {
		l, err := acquireObject[*loaderHandle](int64(handle))
		if err != nil {
			return err
		}
		return l.takeBatch(int64(epoch), int(timeoutMS), taken)
	})
	switch {
	case err == nil:
		return statusDone
	case err == errLate:
		return statusPending
	case errors.Is(err, io.EOF):
		return statusEnd
	}
	return writeFailure(out, err)
}

// takeBatch returns the last batch again if it was not acknowledged, else the next one. It returns
// io.EOF for the end of an epoch as often as it is asked.
func (l *loaderHandle) takeBatch(epoch int64, timeoutMS int, taken *C.robocache_taken) error {
	l.next.Lock()
	defer l.next.Unlock()
	l.mu.Lock()
	if l.last.isUnacknowledged() {
		*taken = l.last.taken
		l.mu.Unlock()
		return nil
	}
	l.last.forgetAcknowledged()
	over := l.endedEpoch != nil && *l.endedEpoch == epoch
	l.mu.Unlock()
	if over {
		return io.EOF
	}
	before := l.loader.Standing()
	b, ok, err := l.loader.TryNext()
	switch {
	case err == nil && !ok && timeoutMS == 0:
		return errLate
	case err == nil && !ok:
		d := newDeadline(timeoutMS)
		defer d.stop()
		b, err = l.loader.Next(d)
	}
	if err == io.EOF {
		ended := l.loader.Epoch() - 1
		l.mu.Lock()
		l.endedEpoch = &ended
		l.mu.Unlock()
	}
	if err != nil {
		return err
	}
	if err := l.texts.write(b); err != nil {
		b.Release()
		return err
	}
	t, err := leaseBatch(b, l.texts.out, l.isRaw)
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

var errLate = errors.New("not finished in time")

// deadline is a context that ends only after a given time. Its error is errLate, which no data
// store returns.
type deadline struct {
	stdcontext.Context
	done  chan struct{}
	timer *time.Timer
}

// newDeadline returns a deadline in ms milliseconds. A negative ms means never.
func newDeadline(ms int) *deadline {
	d := &deadline{Context: stdcontext.Background(), done: make(chan struct{})}
	if ms >= 0 {
		d.timer = time.AfterFunc(time.Duration(ms)*time.Millisecond, func() { close(d.done) })
	}
	return d
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return errLate
	default:
		return nil
	}
}
