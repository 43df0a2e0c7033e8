package rosbag2

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
)

// TestMessageWindows checks that the declared window of a frame allocates no memory, and that a
// window allowed by the size of the message is accepted.
func TestMessageWindows(t *testing.T) {
	d := (&zstdMessages{}).acquireDecoder()
	// A skippable frame, and a frame with a window of 512 MiB that holds five bytes.
	small := []byte{
		0x50,
		0x2a,
		0x4d,
		0x18,
		1,
		0,
		0,
		0,
		0,
		0x28,
		0xb5,
		0x2f,
		0xfd,
		0,
		19 << 3,
		1 | 1<<1 | 5<<3,
		0,
		0,
		'x',
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	five, err := d.decompress(small)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; err != nil || string(five) != "xxxxx" ||
		got > 32<<20 {
		t.Errorf("%q %v: %d bytes were taken for a message of %d", five, err, got, len(small))
	}
	want := make([]byte, 17<<20)
	rand.NewChaCha8([32]byte{}).Read(want[:16<<20])
	for _, window := range []int{1 << 20, 16 << 20} {
		for range 2 {
			if got, err := d.decompress(squeezed(t, want, window)); err != nil ||
				!bytes.Equal(got, want) {
				t.Errorf("window %d: %d bytes, %v", window, len(got), err)
			}
		}
	}
}

// TestMessageBroken checks that the message after a message that grows too large is read.
func TestMessageBroken(t *testing.T) {
	d := (&zstdMessages{}).acquireDecoder()
	if _, err := d.decompress(squeezed(t, make([]byte, freeBytes+1), 1<<20)); !errors.Is(err,
		robocache.ErrResourceLimit) {
		t.Fatal(err)
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("next"), 1000)
	done := make(chan error, 1)
	go func() {
		got, err := d.decompress(e.EncodeAll(want, nil))
		if err == nil && !bytes.Equal(got, want) {
			err = errors.New("other bytes")
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("it waits for ever")
	}
}

// squeezed compresses as a stream, which does not declare its size.
func squeezed(t *testing.T, b []byte, window int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		n := min(len(b), 1<<20)
		if _, err := w.Write(b[:n]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
