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
		*err = malformed(op, nil, r)
	}
}

// File is Malformed for one file of a dataset.
func File(op, name string, err *error) {
	if r := recover(); r != nil {
		*err = malformed(op, robocache.Where{"file": name}, r)
	}
}

func malformed(op string, where robocache.Where, panicked any) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: op, Where: where, Msg: fmt.Sprintf("input that the reader did not expect: %v", panicked), Err: errors.New(string(debug.Stack()))}
}
