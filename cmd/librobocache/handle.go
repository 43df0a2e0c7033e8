//go:build cgo

package main

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// object is what a handle stands for.
type object interface{ close() error }

// usable is an object that calls keep open while they use it.
type usable interface {
	object
	hold() bool // false: it is closed
	release() error
}

// shared by its handle and by whoever uses it: the last one ends it.
type users struct {
	n   atomic.Int64
	end func() error
}

func (u *users) hold() bool {
	for n := u.n.Load(); n > 0; n = u.n.Load() {
		if u.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (u *users) release() error {
	if u.n.Add(-1) == 0 {
		return u.end()
	}
	return nil
}

func (u *users) close() error { return u.release() }

// table gives numbers to things. Numbers are never used twice, so a stale one cannot name another
// thing (C3).
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
func lookup[T object](handle int64) (T, error) {
	var zero T
	obj, ok := handles.get(handle)
	if !ok {
		return zero, misuse("handle", "it is closed or was never given")
	}
	v, ok := obj.(T)
	if !ok {
		return zero, misuse("handle", fmt.Sprintf("it is of another kind (%T)", obj))
	}
	return v, nil
}

// held is lookup of an object that the caller releases.
func held[T usable](handle int64) (T, error) {
	v, err := lookup[T](handle)
	if err == nil && !v.hold() {
		err = misuse("handle", "it is closed")
	}
	return v, err
}

// keep puts a new object into the table of handles and says how it is taken back.
func keep(o object, value func(handle int64) any) made {
	h := handles.put(o)
	return made{value(h), func() {
		if o := handles.remove(h); o != nil {
			_ = o.close()
		}
	}}
}

func misuse(op, msg string) error {
	return robocache.Misuse(op, nil, "%s", msg)
}
