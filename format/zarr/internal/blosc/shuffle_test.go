package blosc

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache/format/internal/elements"
)

// shuffled applies blosc's byte shuffle according to its definition.
func shuffled(b []byte, size int) []byte {
	n := len(b) / size
	out := bytes.Clone(b)
	for i := range n {
		for k := range size {
			out[k*n+i] = b[i*size+k]
		}
	}
	return out
}

// bitShuffled applies blosc's bitshuffle according to its definition.
func bitShuffled(b []byte, size int) []byte {
	n := len(b) / size
	out := bytes.Clone(b)
	if n%8 != 0 {
		return out
	}
	clear(out[:n*size])
	for i := range n {
		for k := range size {
			for bit := range 8 {
				out[(k*8+bit)*(n/8)+i/8] |= b[i*size+k] >> bit & 1 << (i % 8)
			}
		}
	}
	return out
}

// TestUnshuffle compares the loops with the definition, for every length around their block sizes.
func TestUnshuffle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 3, 4, 5, 8, 16, 17} {
		for n := range 300 {
			b := make([]byte, n*size+r.IntN(size))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			dst, planes := make([]byte, len(b)), make([]byte, len(b))
			if elements.Unshuffle(dst, shuffled(b, size), size); !bytes.Equal(dst, b) {
				t.Fatalf("bytes: %d elements of %d", n, size)
			}
			if unshuffleBits(dst, bitShuffled(b, size), planes, size); !bytes.Equal(dst, b) {
				t.Fatalf("bits: %d elements of %d", n, size)
			}
			if n%8 == 0 && n > 0 {
				rows, plane := bitShuffled(b[:n], 1), make([]byte, n)
				if bitPlane(plane, rows); !bytes.Equal(plane, b[:n]) {
					t.Fatalf("bits: a plane of %d", n)
				}
			}
		}
	}
}
