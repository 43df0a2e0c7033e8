package rosbag2

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// starved is a store in which one file cannot be opened for lack of memory.
type starved struct {
	store.Store
	file string
}

func (s starved) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	if strings.HasSuffix(name, s.file) {
		return nil, &robocache.Error{
			Class: robocache.ErrResourceLimit,
			Op:    "test",
			Msg:   "no address space",
			Err:   syscall.ENOMEM,
		}
	}
	return s.Store.Open(ctx, name)
}

// TestLackOfMemoryLosesNoRecording checks that a recording that cannot be read for lack of memory
// is an error of opening. It is not omitted like a damaged one.
func TestLackOfMemoryLosesNoRecording(t *testing.T) {
	s, err := store.Open(realdata.Path(t, "rosbag2") + "/py")
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenStore(t.Context(), starved{s, "rewriter_a_0.db3"}, "", robocache.OpenOptions{})
	if err == nil {
		defer d.Close()
		t.Fatalf("opened with %d frames", d.Info().Frames)
	}
	if !errors.Is(err, robocache.ErrResourceLimit) || !robocache.IsMachineLimit(err) ||
		strings.Contains(err.Error(), "goroutine") {
		t.Errorf("got %v, want a resource limit without a stack", err)
	}
}
