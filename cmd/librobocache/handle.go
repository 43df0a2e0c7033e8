//go:build cgo

package main

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// object is what a handle refers to.
type object interface{ close() error }

// usable is an object that stays open while calls use it.
type usable interface {
	object
	acquire() bool // returns false if the object is closed
	release() error
}

// users counts the users of an object. The last one to release it calls end.
type users struct {
	n   atomic.Int64
	end func() error
}

func (u *users) acquire() bool {
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

// table assigns numbers to values. Numbers are never reused, so an old number cannot refer to
// another value (librobocache.C3).
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

// remove removes the value of n and returns it, or the zero value if there is none.
func (t *table[T]) remove(n int64) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.m[n]
	delete(t.m, n)
	return v
}

var handles table[object]

// lookupHandle returns the object of a handle and checks its kind.
func lookupHandle[T object](handle int64) (T, error) {
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

// acquireObject returns the object of a handle and keeps it open. The caller must release it.
func acquireObject[T usable](handle int64) (T, error) {
	v, err := lookupHandle[T](handle)
	if err == nil && !v.acquire() {
		err = misuse("handle", "it is closed")
	}
	return v, err
}

// newHandle assigns a handle to a new object. The answer is value(handle); undoing it closes the
// object.
func newHandle(o object, value func(handle int64) any) revocable {
	h := handles.put(o)
	return revocable{value(h), func() {
		if o := handles.remove(h); o != nil {
			_ = o.close()
		}
	}}
}

func misuse(op, msg string) error {
	return robocache.Misuse(op, nil, "%s", msg)
}
