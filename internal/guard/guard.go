package guard

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/goatnote-inc/robocache"
)

// Malformed turns a panic into *err, an error of class Malformed that holds the stack; without a panic it leaves *err as it is.
func Malformed(op string, err *error) {
	if r := recover(); r != nil {
		*err = caught(op, nil, r)
	}
}

// File is Malformed for one file of a dataset.
func File(op, name string, err *error) {
	if r := recover(); r != nil {
		*err = caught(op, robocache.Where{"file": name}, r)
	}
}

func caught(op string, where robocache.Where, panicked any) error {
	if f, ok := panicked.(failure); ok {
		return f.error
	}
	return &robocache.Error{Class: robocache.ErrMalformed, Op: op, Where: where, Msg: fmt.Sprintf("input that the reader did not expect: %v", panicked), Err: errors.New(string(debug.Stack()))}
}

// failure is an error on its way to a guard.
type failure struct{ error }

// Fail ends the work with an error.
func Fail(err error) { panic(failure{err}) }

// Check ends the work where there is an error.
func Check(err error) {
	if err != nil {
		Fail(err)
	}
}

// Must gives a value, or ends the work with its error.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Try gives the error that fn ends with. A panic passes.
func Try(fn func()) (err error) {
	defer Into(&err)
	fn()
	return nil
}

// Into gives the error that the function ends with, where the work in it may Fail: defer guard.Into(&err). A panic passes.
func Into(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

// Func makes of fn what a goroutine runs: it gives the error that fn ends with, of a panic too.
func Func(op string, fn func()) func() error {
	return func() (err error) {
		defer Malformed(op, &err)
		fn()
		return nil
	}
}

// At says where an error that passes belongs: defer guard.At(where).
func At(where robocache.Where) {
	if r := recover(); r != nil {
		placed(r, where)
	}
}

// In is At of one place, which costs nothing where nothing fails: defer guard.In("file", name).
func In(key string, value any) {
	if r := recover(); r != nil {
		placed(r, robocache.Where{key: value})
	}
}

func placed(panicked any, where robocache.Where) {
	if f, ok := panicked.(failure); ok {
		Fail(robocache.At(f.error, where))
	}
	panic(panicked)
}

// Value is Try of what gives a value.
func Value[T any](fn func() T) (v T, err error) {
	err = Try(func() { v = fn() })
	return v, err
}
