package elements

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestUnshuffle checks that Unshuffle reverses Shuffle for every length around the block size, and
// does not write beyond dst.
func TestUnshuffle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 3, 4, 5, 8, 16, 17} {
		for n := range 100 {
			b := make([]byte, n*size+r.IntN(size))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			planes, got := make([]byte, len(b)), bytes.Repeat([]byte{0xa5}, len(b)+64)
			Shuffle(planes, b, size)
			if Unshuffle(got, planes, size); !bytes.Equal(got[:len(b)], b) {
				t.Fatalf("%d elements of %d", n, size)
			}
			if !bytes.Equal(got[len(b):], bytes.Repeat([]byte{0xa5}, 64)) {
				t.Fatalf("%d elements of %d: bytes beyond were written", n, size)
			}
		}
	}
}
