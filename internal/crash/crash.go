// Package crash turns panics into errors of class internal. It is used at the boundary to the
// caller and at the start of goroutines. A panic is a defect of RoboCache; the error carries its
// stack.
package crash

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/goatnote-inc/robocache"
)

// Raised is a panic value of internal/guard: an error that a leaf decoder raised.
type Raised interface{ Raised() error }

// Recover turns a panic into *err. A raised error is assigned to *err unchanged. Any other panic
// becomes an error of class ErrInternal with the stack. Without a panic, *err is unchanged. Recover
// must be deferred directly.
func Recover(op string, err *error) {
	if r := recover(); r != nil {
		*err = FromPanic(op, nil, r)
	}
}

// RecoverFile is Recover for work on one file of a dataset.
func RecoverFile(op, name string, err *error) {
	if r := recover(); r != nil {
		*err = FromPanic(op, robocache.Where{"file": name}, r)
	}
}

// Func returns a function for a goroutine that calls fn and turns its panic into an error.
func Func(op string, fn func() error) func() error {
	return func() (err error) {
		defer Recover(op, &err)
		return fn()
	}
}

// FromPanic returns the error for the value of a panic.
func FromPanic(op string, where robocache.Where, panicked any) error {
	if f, ok := panicked.(Raised); ok {
		return f.Raised()
	}
	// go-sqlite3 and wazero panic if they cannot reserve memory
	if err, ok := panicked.(error); ok && errors.Is(err, syscall.ENOMEM) {
		return &robocache.Error{
			Class: robocache.ErrResourceLimit,
			Op:    op,
			Where: where,
			Msg:   "no address space is left",
			Hint:  "Raise the limit of the process (ulimit -v).",
			Err:   err,
		}
	}
	return &robocache.Error{
		Class: robocache.ErrInternal, Op: op, Where: where, Msg: fmt.Sprint(panicked),
		Hint: "Report this message with its stack: the fault is in RoboCache, not in the data.",
		Err:  errors.New(panicStack()),
	}
}

// panicStack returns the stack of the current goroutine, beginning at the frame that panicked
// first. A guard raises a panic again, which adds frames.
func panicStack() string {
	lines := strings.SplitAfter(string(debug.Stack()), "\n")
	for i, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "panic(") && i+2 < len(lines) {
			return strings.Join(lines[i+2:], "")
		}
	}
	return strings.Join(lines, "")
}
