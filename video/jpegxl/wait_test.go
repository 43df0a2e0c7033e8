package jpegxl

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// TestHugeSizes: sizes whose number of pixels exceeds 64 bits are rejected like others (16 frames
// of 2^30 by 2^30 would overflow to 0).
func TestHugeSizes(t *testing.T) {
	for _, i := range []streamInfo{
		{1 << 30, 1 << 30, 8, 16},
		{1 << 30, 1 << 30, 8, 8},
		{1 << 30, 1 << 30, 8, maxFrames},
		{1<<32 - 1, 1<<32 - 1, 8, 1},
		{0, 1, 8, 1},
		{1, 1, 8, 1<<32 - 1},
	} {
		if c, err := i.channelsFor(300); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%+v: %d channels, %v", i, c, err)
		}
	}
	if c, err := (streamInfo{10, 5, 8, 2}).channelsFor(300); c != 3 || err != nil {
		t.Error(c, err)
	}
}

// TestWaiting: while all cores are in use, an image waits as long as its caller does, regardless of
// the time limit of decoding.
func TestWaiting(t *testing.T) {
	e, err := startEngine()
	if err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { slack = d }(slack)
	slack = 20 * time.Millisecond
	for range cap(e.running) {
		e.running <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err = Decode(ctx, make([]byte, 3), []byte{0xff, 0x0a}, 1)
	for range cap(e.running) {
		<-e.running
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, robocache.ErrResourceLimit) ||
		time.Since(begin) < 150*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}
