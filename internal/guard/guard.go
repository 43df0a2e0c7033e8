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

// failure is the panic value with which Fail raises an error.
type failure struct{ error }

// Raised implements crash.Raised.
func (f failure) Raised() error { return f.error }

// Fail panics with err. A deferred Recover, RecoverFile or Into returns it from the exported
// function.
func Fail(err error) { panic(failure{err}) }

// Check raises err with Fail if it is not nil.
func Check(err error) {
	if err != nil {
		Fail(err)
	}
}

// Must returns v. If err is not nil, it raises err with Fail.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// RaiseInternal raises err with Fail if err is an internal error or a limit of this machine,
// because such an error describes no defect of the data. Otherwise it returns err. Code that
// ignores errors or turns them into findings calls it first.
func RaiseInternal(err error) error {
	if robocache.IsFatal(err) {
		Fail(err)
	}
	return err
}

// Try runs fn and returns the error that fn raised. Other panics are not recovered.
func Try(fn func()) (err error) {
	defer Into(&err)
	fn()
	return nil
}

// Into stores the error that the function raised in *err. It must be deferred: defer
// guard.Into(&err). Other panics are not recovered.
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

// At adds where to an error that is being raised: defer guard.At(where).
func At(where robocache.Where) {
	if r := recover(); r != nil {
		raiseWithPlace(r, where)
	}
}

// In is At with a single key. It allocates only if an error is raised: defer guard.In("file",
// name).
func In(key string, value any) {
	if r := recover(); r != nil {
		raiseWithPlace(r, robocache.Where{key: value})
	}
}

func raiseWithPlace(panicked any, where robocache.Where) {
	if f, ok := panicked.(failure); ok {
		Fail(robocache.At(f.error, where))
	}
	panic(panicked)
}

// Value is Try for a function that returns a value.
func Value[T any](fn func() T) (v T, err error) {
	err = Try(func() { v = fn() })
	return v, err
}
