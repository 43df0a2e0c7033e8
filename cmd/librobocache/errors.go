package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// failure is an error as JSON for the client.
type failure struct {
	Class   string         `json:"class"`
	Message string         `json:"message"`
	Where   map[string]any `json:"where,omitempty"`
	Hint    string         `json:"hint,omitempty"`
}

// catchPanics calls f and returns its error. A panic of f becomes an error of class internal
// (librobocache.C5).
func catchPanics(f func() error) (err error) {
	defer crash.Recover("library", &err)
	if err := f(); err != nil {
		return err
	}
	return nil
}

// describeError returns an error for the client and its status, which is the exit code of the
// command line.
func describeError(err error) (failure, C.int32_t) {
	class, status := robocache.ClassOf(err)
	f := failure{Class: class, Message: err.Error()}
	var e *robocache.Error
	if errors.As(err, &e) {
		f.Hint = e.Hint
		f.Where = make(map[string]any, len(e.Where))
		for k, v := range e.Where {
			if _, err := json.Marshal(v); err != nil {
				v = fmt.Sprint(v)
			}
			f.Where[k] = v
		}
	}
	return f, C.int32_t(status)
}

func writeFailure(out **C.char, err error) C.int32_t {
	f, status := describeError(err)
	b, jerr := json.Marshal(f)
	if jerr != nil { // cannot happen: f holds text, and values that can be encoded
		b = []byte(`{"class":"internal","message":"an error that cannot be encoded"}`)
	}
	*out = C.CString(string(b))
	return status
}

// decodeArguments decodes the JSON of a call. An unknown field is misuse, because it would be
// ignored silently.
func decodeArguments(b []byte, v any) error {
	if len(b) == 0 {
		return nil
	}
	return decodeArgument("", b, v)
}

// decodeArgument decodes the JSON of one argument of a call. name is empty for all arguments.
func decodeArgument(name string, b []byte, v any) error {
	err := jsonmeta.Option("arguments", name, b, v)
	var e *robocache.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Class != robocache.ErrMisuse {
		return robocache.Misuse("arguments", nil, "%s", e.Error())
	}
	if e.Msg == "" {
		e.Msg = "the arguments"
	}
	return e
}
