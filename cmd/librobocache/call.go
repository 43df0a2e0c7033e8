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

// result is what a call made. undo takes it back where nobody waits for it any more; nil where there is nothing to take back.
type result struct {
	value any
	end   bool // the epoch is over
	undo  func()
}

// call is work that runs on its own goroutine, so that the caller can wait in small steps and look after its signals (C2).
type call struct {
	cancel stdcontext.CancelFunc
	notes  *notes
	done   chan struct{}
	res    result
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

type callTable struct{ table[*call] }

func (t *callTable) take(ticket int64) *call { return t.remove(ticket) }

var calls callTable

// invoke starts f and waits for at most timeoutMS.
func invoke(timeoutMS C.int32_t, ticket *C.int64_t, out **C.char, f func(context) (result, error)) C.int32_t {
	ctx, cancel := stdcontext.WithCancel(stdcontext.Background())
	c := &call{cancel: cancel, notes: &notes{}, done: make(chan struct{})}
	ctx = stdcontext.WithValue(ctx, notesKey{}, c.notes)
	go func() {
		defer close(c.done)
		defer func() {
			if r := recover(); r != nil {
				c.res, c.err = result{}, panicked(r)
			}
		}()
		c.res, c.err = f(ctx)
	}()
	return finish(c, timeoutMS, ticket, out)
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
	if c.res.end {
		return statusEnd
	}
	s := reply(out, c.res.value)
	if s != statusDone && c.res.undo != nil {
		c.res.undo()
	}
	return s
}

// abandon cancels c; what it makes all the same is taken back.
func (c *call) abandon() {
	c.cancel()
	go func() {
		<-c.done
		if c.err == nil && c.res.undo != nil {
			c.res.undo()
		}
	}()
}

// direct is for calls that never block.
func direct(out **C.char, f func() (any, error)) (status C.int32_t) {
	defer func() {
		if r := recover(); r != nil {
			status = fail(out, panicked(r))
		}
	}()
	v, err := f()
	if err != nil {
		return fail(out, err)
	}
	return reply(out, v)
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

// arguments reads the JSON of a call. An unknown field is misuse: it is a wish that would be ignored silently.
func arguments(in *C.char, v any) error {
	if in == nil {
		return nil
	}
	return decodeArguments([]byte(C.GoString(in)), v)
}
