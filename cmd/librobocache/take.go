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

// takeBack ends the interest in the last batch. One that did not arrive goes back; its few bytes of
// bookkeeping stay, because its client may yet ask for its tensors, and is to be told that there
// are none.
func (b *lastBatch) takeBack() {
	if b.batch != nil && C.robocache_batch_settle(b.batch, 2) == 0 {
		C.robocache_batch_forget(b.batch)
	}
	b.batch = nil
}

// groupsOf says which tensors of a batch go back together: what shares a buffer, and each large one
// alone.
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

// lendBatch lends a batch of a loader. raw: what is moved to a device is whole buffers.
func lendBatch(b *loader.Batch, text []byte, raw bool) (t C.robocache_taken, err error) {
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
	c, err := lend(tensors, group, free, text)
	if err != nil {
		return t, err
	}
	return C.robocache_taken{
		rows: C.int64_t(
			b.Rows,
		),
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
	err := border(func() error {
		heldValue, err := held[*loaderHandle](int64(handle))
		if err != nil {
			return err
		}
		return heldValue.take(int64(epoch), int(timeoutMS), taken)
	})
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

// take gives the last batch again where it did not arrive, else the next. That an epoch is over it
// says as often as asked.
func (l *loaderHandle) take(epoch int64, timeoutMS int, taken *C.robocache_taken) error {
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
		d := newDeadline(timeoutMS)
		defer d.stop()
		b, err = l.l.Next(d)
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
	t, err := lendBatch(b, l.texts.out, l.raw)
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

// deadline is a context that ends after some time, and by nothing else: its error cannot be one of
// the data's store.
type deadline struct {
	stdcontext.Context
	done  chan struct{}
	timer *time.Timer
}

// newDeadline waits for ms milliseconds; below 0 for ever.
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
