package rosbag2

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
)

// TestFramesWithoutSize checks that a message whose frame does not declare its size grows up to the
// ratio, and no further.
func TestFramesWithoutSize(t *testing.T) {
	pack := func(b []byte) []byte {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 { // in pieces, so that the writer does not know the size
			n := min(len(b), 100_000)
			if _, err := w.Write(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var h zstd.Header
		if err := h.Decode(out.Bytes()); err != nil || h.HasFCS {
			t.Fatal("a frame that says its size", err)
		}
		return out.Bytes()
	}
	noise := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	z := &zstdMessages{}
	d := z.acquireDecoder()
	for _, b := range [][]byte{noise, bytes.Repeat(noise[:2000], 1000)} {
		if got, err := d.decompress(pack(b)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes: %d, %v", len(b), len(got), err)
		}
	}
	// images of a dark camera
	black := make([]byte, 720*1280*3+60)
	if got, err := d.decompress(pack(black)); err != nil || !bytes.Equal(got, black) {
		t.Errorf("black: %d bytes, %v", len(got), err)
	}
	bomb := pack(make([]byte, 300<<20))
	if got, err := d.decompress(bomb); !errors.Is(err, robocache.ErrResourceLimit) ||
		cap(d.buf) > max(maxRatio*len(bomb), freeBytes) {
		t.Errorf(
			"a bomb of %d bytes: %d bytes, %v; the buffer holds %d",
			len(bomb),
			len(got),
			err,
			cap(d.buf),
		)
	}
	if got, err := d.decompress(pack(noise)); err != nil || !bytes.Equal(got, noise) {
		t.Errorf("after it: %d, %v", len(got), err)
	}
}
