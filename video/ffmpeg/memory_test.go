//go:build cgo

package ffmpeg

import (
	"errors"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestLackOfMemoryIsNotDamage checks that libavcodec's error for a lack of memory is a resource
// limit, and that other codes of it are bad data.
func TestLackOfMemoryIsNotDamage(t *testing.T) {
	for code, want := range map[syscall.Errno]error{
		syscall.ENOMEM: robocache.ErrResourceLimit,
		syscall.EINVAL: robocache.ErrMalformed,
	} {
		if err := resultError("receive a frame", -int(code)); !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", code, err, want)
		}
	}
}
