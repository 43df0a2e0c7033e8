// Package hostile contains checks for parsers of untrusted bytes: memory in proportion to the
// input, typed errors, no panic.
package hostile

import (
	"errors"
	"runtime/metrics"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// Allocated returns the number of bytes that the process has allocated so far, including freed
// ones. Small allocations count when their span is full, so differences are exact to some hundred
// kilobytes.
func Allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Typed fails the test if err is neither nil nor a robocache.Error, or if it is an internal error:
// a reader must check its input instead of panicking.
func Typed(t testing.TB, err error) {
	t.Helper()
	var e *robocache.Error
	switch {
	case err == nil:
	case !errors.As(err, &e):
		t.Errorf("untyped: %v", err)
	case errors.Is(err, robocache.ErrInternal):
		t.Errorf("a panic: %v", err)
	}
}
