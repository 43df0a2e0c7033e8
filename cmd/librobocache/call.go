package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	stdcontext "context"
	"encoding/json"
	"sync"
	"time"
)

type context = stdcontext.Context

const (
	statusDone    = 0
	statusPending = -1
	statusEnd     = -2
)

// handler reads what a call is asked, and gives the work.
type handler func(handle int64, in []byte) (work, error)

// work makes the answer of a call: what JSON is made of, or made.
type work func(ctx context) (any, error)

// none are the arguments of a call that has none.
type none struct{}

// made is an answer that can be taken back where nobody waits for it any more.
type made struct {
	value any
	undo  func()
}

// serve makes a call that needs no object.
func serve[A any](f func(ctx context, a *A) (any, error)) handler {
	return func(_ int64, in []byte) (work, error) {
		a := new(A)
		if err := decodeArguments(in, a); err != nil {
			return nil, err
		}
		return func(ctx context) (any, error) { return f(ctx, a) }, nil
	}
}

// on makes a call on an object, which stays open until the call is over.
func on[T usable, A any](f func(obj T, ctx context, a *A) (any, error)) handler {
	return func(handle int64, in []byte) (work, error) {
		a := new(A)
		if err := decodeArguments(in, a); err != nil {
			return nil, err
		}
		return func(ctx context) (any, error) {
			obj, err := held[T](handle)
			if err != nil {
				return nil, err
			}
			defer func() { _ = obj.release() }()
			return f(obj, ctx, a)
		}, nil
	}
}

// call is work that runs on its own goroutine, so that the caller can wait in small steps and look
// after its signals (C2).
type call struct {
	cancel stdcontext.CancelFunc
	notes  notes
	done   chan struct{}
	value  any
	err    error
}

// notes are lines that a call says while it runs: they come with the next statusPending.
type notes struct {
	mu    sync.Mutex
	lines []string
}

type notesKey struct{}

// logOf gives what a call's lines go to.
func logOf(ctx context) func(string) {
	n, _ := ctx.Value(notesKey{}).(*notes)
	return func(line string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lines = append(n.lines, line)
	}
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

// calls are those that nobody waits for at the moment, by their tickets.
var calls table[*call]

func start(f work) *call {
	ctx, cancel := stdcontext.WithCancel(stdcontext.Background())
	c := &call{cancel: cancel, done: make(chan struct{})}
	ctx = stdcontext.WithValue(ctx, notesKey{}, &c.notes)
	go func() {
		defer close(c.done)
		c.err = border(func() error {
			var err error
			if c.value, err = f(ctx); err != nil {
				return err
			}
			return nil
		})
	}()
	return c
}

// finish waits for c; where it is not done in time, or has lines to tell first, c gets a ticket.
func finish(c *call, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	if timeoutMS < 0 {
		<-c.done
	} else {
		t := time.NewTimer(time.Duration(timeoutMS) * time.Millisecond)
		defer t.Stop()
		late := false
		select {
		case <-c.done:
		case <-t.C:
			late = true
		}
		lines := c.notes.take()
		if late || len(lines) > 0 {
			*ticket = C.int64_t(calls.put(c))
			if len(lines) > 0 {
				reply(out, map[string]any{"log": lines})
			}
			return statusPending
		}
	}
	c.cancel()
	*ticket = 0
	if c.err != nil {
		return fail(out, c.err)
	}
	m, ok := c.value.(made)
	if !ok {
		return reply(out, c.value)
	}
	s := reply(out, m.value)
	if s != statusDone {
		m.undo()
	}
	return s
}

// abandon cancels c; what it makes all the same is taken back.
func (c *call) abandon() {
	c.cancel()
	go func() {
		<-c.done
		if m, ok := c.value.(made); ok && c.err == nil {
			m.undo()
		}
	}()
}

func reply(out **C.char, v any) C.int32_t {
	if v == nil {
		*out = nil
		return statusDone
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fail(out, err)
	}
	*out = C.CString(string(b))
	return statusDone
}
