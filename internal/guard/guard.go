package guard

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Recover turns a panic into *err. An error that Fail raised becomes *err as it is.
// Any other panic is a defect of RoboCache: *err is of class ErrInternal and holds the stack.
// If nothing panicked, *err is unchanged.
func Recover(op string, err *error) {
	if r := recover(); r != nil {
		*err = crash.FromPanic(op, nil, r)
	}
}

// RecoverFile is Recover for work on one file of a dataset.
func RecoverFile(op, name string, err *error) {
	if r := recover(); r != nil {
		*err = crash.FromPanic(op, robocache.Where{"file": name}, r)
	}
}

// failure is an error on its way to a guard.
type failure struct{ error }

// Raised implements crash.Raised.
func (f failure) Raised() error { return f.error }

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

// RaiseInternal ends the work if err says nothing about the data, because it is an internal error
// or a limit of this machine; otherwise it returns err. Code that turns errors into findings, or
// ignores them, calls it first.
func RaiseInternal(err error) error {
	if robocache.IsFatal(err) {
		Fail(err)
	}
	return err
}

// Try gives the error that fn ends with. A panic passes.
func Try(fn func()) (err error) {
	defer Into(&err)
	fn()
	return nil
}

// Into gives the error that the function ends with, where the work in it may Fail: defer
// guard.Into(&err). A panic passes.
func Into(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.error
	default:
		panic(r)
	}
}

// Func returns a function for a goroutine that runs fn and returns its error; Recover handles a
// panic.
func Func(op string, fn func()) func() error {
	return func() (err error) {
		defer Recover(op, &err)
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
