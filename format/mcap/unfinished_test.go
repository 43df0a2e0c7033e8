package mcap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
)

// TestUnfinished checks that a folder into which recordings are being written, or were when the
// writer was killed, does not open.
func TestUnfinished(t *testing.T) {
	src, err := synth.New(synth.Options{Episodes: 3, Seconds: 0.5, Cameras: -1})
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	looked := 0
	opt := robocache.WriteOptions{Threads: 1, Progress: func(p robocache.Progress) {
		if p.Episodes == looked {
			return // within an episode
		}
		looked++
		if _, err := Open(context.Background(), dst, robocache.OpenOptions{}); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Errorf("after %d recordings: %v", looked, err)
		}
	}}
	if _, err := Write(t.Context(), src, dst, opt); err != nil {
		t.Fatal(err)
	}
	if looked != 3 {
		t.Errorf("looked %d times", looked)
	}
	d, err := Open(t.Context(), dst, robocache.OpenOptions{})
	if err != nil || d.Info().Episodes != 3 {
		t.Fatal(err)
	}
	d.Close()
	// A failed writer also removes its marker.
	ctx, cancel := context.WithCancel(t.Context())
	dst = filepath.Join(t.TempDir(), "failed")
	opt.Progress = func(robocache.Progress) { cancel() }
	if _, err := Write(ctx, src, dst, opt); err == nil {
		t.Error("a cancelled conversion reports success")
	}
	if left, _ := os.ReadDir(dst); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
