package guard_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

func index(list []int, at int) (err error) {
	defer guard.Recover("test read", &err)
	_ = list[at]
	return nil
}

func indexFile(list []int, at int) (err error) {
	defer guard.RecoverFile("test read", "a.bin", &err)
	_ = list[at]
	return errors.New("its own")
}

func TestPanicsAreErrors(t *testing.T) {
	if err := index([]int{1}, 0); err != nil {
		t.Error(err)
	}
	if err := indexFile([]int{1}, 0); err == nil || err.Error() != "its own" {
		t.Error("without a panic the error is the function's own:", err)
	}
	err := index(nil, 3)
	var e *robocache.Error
	if !errors.As(err, &e) || !errors.Is(err, robocache.ErrInternal) || robocache.Bad(err) ||
		e.Op != "test read" ||
		!strings.Contains(e.Msg, "index out of range") ||
		!strings.Contains(e.Err.Error(), "guard_test.go") {
		t.Errorf("%#v", err)
	}
	if err := indexFile(nil, 3); !errors.As(err, &e) || e.Where["file"] != "a.bin" {
		t.Errorf("%#v", err)
	}
}

// TestRaiseInternal checks which errors end the work instead of becoming findings.
func TestRaiseInternal(t *testing.T) {
	for _, c := range []struct {
		err  error
		ends bool
	}{
		{nil, false},
		{&robocache.Error{Class: robocache.ErrMalformed, Msg: "cut"}, false},
		{&robocache.Error{Class: robocache.ErrResourceLimit, Msg: "larger than the limit"}, false},
		{&robocache.Error{Class: robocache.ErrResourceLimit, Err: syscall.ENOMEM}, true},
		{&robocache.Error{Class: robocache.ErrResourceLimit, Err: syscall.EMFILE}, true},
		{&robocache.Error{Class: robocache.ErrInternal, Msg: "index out of range"}, true},
	} {
		ended := true
		if err := guard.Try(
			func() { _ = guard.RaiseInternal(c.err); ended = false },
		); ended != c.ends ||
			c.ends && !errors.Is(err, c.err) {
			t.Errorf("%v: ended %v with %v, want %v", c.err, ended, err, c.ends)
		}
	}
}
