package main

import (
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// object is what a handle stands for.
type object interface{ close() error }

// table gives numbers to things. Numbers are never used twice, so a stale one cannot name another thing (C3).
type table[T any] struct {
	mu   sync.Mutex
	last int64
	m    map[int64]T
}

func (t *table[T]) put(v T) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = map[int64]T{}
	}
	t.last++
	t.m[t.last] = v
	return t.last
}

func (t *table[T]) get(n int64) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.m[n]
	return v, ok
}

// remove takes v out of the table; the zero value where it is not in it.
func (t *table[T]) remove(n int64) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.m[n]
	delete(t.m, n)
	return v
}

var handles table[object]

// lookup finds the object of a handle and checks its kind.
func lookup[T object](handle int64, op string) (T, error) {
	var zero T
	obj, ok := handles.get(handle)
	if !ok {
		return zero, misuse(op, "the handle is closed or was never given")
	}
	v, ok := obj.(T)
	if !ok {
		return zero, misuse(op, fmt.Sprintf("the handle is of another kind (%T)", obj))
	}
	return v, nil
}

func misuse(op, msg string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: op, Msg: msg}
}
