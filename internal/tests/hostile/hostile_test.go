package hostile

import (
	"errors"
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache"
)

type failures struct {
	testing.TB
	n int
}

func (*failures) Helper()                 {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestTyped(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{fmt.Errorf("read: %w", &robocache.Error{Class: robocache.ErrMalformed, Msg: "cut"}), 0},
		{errors.New("cut"), 1},
		{&robocache.Error{Class: robocache.ErrInternal, Msg: "index out of range"}, 1},
	} {
		f := &failures{}
		if Typed(f, c.err); f.n != c.want {
			t.Errorf("%v: %d failures, want %d", c.err, f.n, c.want)
		}
	}
}

var sink []byte

func TestAllocated(t *testing.T) {
	before := Allocated()
	sink = make([]byte, 1<<20)
	if n := Allocated() - before; n < 1<<20 || n > 8<<20 {
		t.Errorf("a megabyte counts as %d bytes", n)
	}
}
