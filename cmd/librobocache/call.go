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

// handler parses the arguments of a call and returns its work.
type handler func(handle int64, in []byte) (work, error)

// work computes the answer of a call: a value for JSON, or a revocable.
type work func(ctx context) (any, error)

// noArguments is the type of empty arguments.
type noArguments struct{}

// revocable is an answer that is undone if the client no longer waits for it.
type revocable struct {
	value any
	undo  func()
}

// withoutObject returns the handler of a call that needs no object.
func withoutObject[A any](f func(ctx context, a *A) (any, error)) handler {
	return func(_ int64, in []byte) (work, error) {
		a := new(A)
		if err := decodeArguments(in, a); err != nil {
			return nil, err
		}
		return func(ctx context) (any, error) { return f(ctx, a) }, nil
	}
}

// onObject returns the handler of a call on an object. The object stays open until the call ends.
func onObject[T usable, A any](f func(obj T, ctx context, a *A) (any, error)) handler {
	return func(handle int64, in []byte) (work, error) {
		a := new(A)
		if err := decodeArguments(in, a); err != nil {
			return nil, err
		}
		return func(ctx context) (any, error) {
			obj, err := acquireObject[T](handle)
			if err != nil {
				return nil, err
			}
			defer func() { _ = obj.release() }()
			return f(obj, ctx, a)
		}, nil
	}
}

// call is work on its own goroutine. The caller waits in short steps, and can handle signals in
// between (librobocache.C2).
type call struct {
	cancel stdcontext.CancelFunc
	notes  callNotes
	done   chan struct{}
	value  any
	err    error
}

// callNotes collects the log lines of a running call. The client gets them with the next
// statusPending.
type callNotes struct {
	mu    sync.Mutex
	lines []string
}

type notesKey struct{}

// logOf returns a function that adds a line to the notes of a call.
func logOf(ctx context) func(string) {
	n, _ := ctx.Value(notesKey{}).(*callNotes)
	return func(line string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lines = append(n.lines, line)
	}
}

func (n *callNotes) drain() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

// waitingCalls holds the calls that no client waits for at the moment, by ticket.
var waitingCalls table[*call]

func startCall(f work) *call {
	ctx, cancel := stdcontext.WithCancel(stdcontext.Background())
	c := &call{cancel: cancel, done: make(chan struct{})}
	ctx = stdcontext.WithValue(ctx, notesKey{}, &c.notes)
	go func() {
		defer close(c.done)
		c.err = catchPanics(func() error {
			var err error
			if c.value, err = f(ctx); err != nil {
				return err
			}
			return nil
		})
	}()
	return c
}

// finishCall waits for c. If c is not done in time or has log lines, it stores a ticket and returns
// statusPending.
func finishCall(c *call, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
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
		lines := c.notes.drain()
		if late || len(lines) > 0 {
			*ticket = C.int64_t(waitingCalls.put(c))
			if len(lines) > 0 {
				writeReply(out, map[string]any{"log": lines})
			}
			return statusPending
		}
	}
	c.cancel()
	*ticket = 0
	if c.err != nil {
		return writeFailure(out, c.err)
	}
	m, ok := c.value.(revocable)
	if !ok {
		return writeReply(out, c.value)
	}
	s := writeReply(out, m.value)
	if s != statusDone {
		m.undo()
	}
	return s
}

// abandon cancels c. An answer that it still creates is undone.
func (c *call) abandon() {
	c.cancel()
	go func() {
		<-c.done
		if m, ok := c.value.(revocable); ok && c.err == nil {
			m.undo()
		}
	}()
}

func writeReply(out **C.char, v any) C.int32_t {
	if v == nil {
		*out = nil
		return statusDone
	}
	b, err := json.Marshal(v)
	if err != nil {
		return writeFailure(out, err)
	}
	*out = C.CString(string(b))
	return statusDone
}
