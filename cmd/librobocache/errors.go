package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"bytes"
	stdcontext "context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/goatnote-inc/robocache"
)

// failure is an error as it crosses the border.
type failure struct {
	Class   string         `json:"class"`
	Message string         `json:"message"`
	Where   map[string]any `json:"where,omitempty"`
	Hint    string         `json:"hint,omitempty"`
}

// The statuses are the exit codes of the CLI, so that one table is to be known.
var classes = []struct {
	err    error
	name   string
	status C.int32_t
}{
	{robocache.ErrNotFound, "not_found", 10},
	{robocache.ErrMalformed, "malformed", 11},
	{robocache.ErrUnsupported, "unsupported", 12},
	{robocache.ErrResourceLimit, "resource_limit", 13},
	{robocache.ErrTemporary, "temporary", 75},
	{robocache.ErrMisuse, "misuse", 2},
	{stdcontext.Canceled, "interrupted", 130},
	{stdcontext.DeadlineExceeded, "temporary", 75},
}

// panicError is a bug of ours that was caught at the border (C5).
type panicError struct {
	value any
	stack string
}

func (p *panicError) Error() string { return fmt.Sprintf("internal error: %v", p.value) }

func panicked(r any) error { return &panicError{r, string(debug.Stack())} }

func describe(err error) (failure, C.int32_t) {
	f := failure{Class: "internal", Message: err.Error()}
	status := C.int32_t(1)
	for _, c := range classes {
		if errors.Is(err, c.err) {
			f.Class, status = c.name, c.status
			break
		}
	}
	var e *robocache.Error
	var p *panicError
	switch {
	case errors.As(err, &e):
		f.Hint = e.Hint
		f.Where = make(map[string]any, len(e.Where))
		for k, v := range e.Where {
			if _, err := json.Marshal(v); err != nil {
				v = fmt.Sprint(v)
			}
			f.Where[k] = v
		}
	case errors.As(err, &p):
		f.Where = map[string]any{"stack": p.stack}
		f.Hint = "this is a bug in RoboCache: please report it with the stack in .where"
	}
	return f, status
}

func fail(out **C.char, err error) C.int32_t {
	f, status := describe(err)
	b, jerr := json.Marshal(f)
	if jerr != nil { // cannot happen: f holds text and values that were tried
		b = []byte(`{"class":"internal","message":"an error that cannot be told"}`)
	}
	*out = C.CString(string(b))
	return status
}

func decodeArguments(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var e *robocache.Error
		if errors.As(err, &e) {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "arguments", Msg: e.Error()}
		}
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "arguments", Err: err}
	}
	return nil
}
