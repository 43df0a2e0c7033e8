package video

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestPlanes: splitting pixels in blocks and one by one gives the same result, without writes
// beyond the end.
func TestPlanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 15, 16, 17, 33, 84 * 84, 7057} {
		rgb := make([]byte, 3*n)
		for i := range rgb {
			rgb[i] = byte(rng.Uint32())
		}
		out := make([]byte, 3*n+3)
		splitPixels(out[:n], out[n+1:2*n+1], out[2*n+2:3*n+2], rgb)
		for i := range n {
			if out[i] != rgb[3*i] || out[n+1+i] != rgb[3*i+1] || out[2*n+2+i] != rgb[3*i+2] {
				t.Fatal(n, i)
			}
		}
		if out[n] != 0 || out[2*n+1] != 0 || out[3*n+2] != 0 {
			t.Error("written past the end of a plane", n)
		}
	}
}

// TestRawPlanes: raw pixels delivered directly to planes equal those delivered through packed
// pixels, for every order and stride.
func TestRawPlanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, stride := range []int{0, 23 * 3, 23*3 + 5} {
		for _, bgr := range []bool{false, true} {
			raw := &robocache.Raw{
				Pix:      make([]byte, 9*max(stride, 23*3)),
				Height:   9,
				Width:    23,
				Channels: 3,
				DType:    robocache.Uint8,
				Stride:   stride,
				BGR:      bgr,
			}
			for i := range raw.Pix {
				raw.Pix[i] = byte(rng.Uint32())
			}
			ref := &robocache.FrameRef{Raw: raw}
			packed, first, want := make([]byte, 9*23*3), make([]byte, 9*23*3), make([]byte, 9*23*3)
			if err := DecodeImage(ref, &Spec{}, packed); err != nil {
				t.Fatal(err)
			}
			if err := DecodeImage(ref, &Spec{ChannelsFirst: true}, first); err != nil {
				t.Fatal(err)
			}
			for i := range 9 * 23 {
				for c := range 3 {
					want[c*9*23+i] = packed[3*i+c]
				}
			}
			if !bytes.Equal(first, want) {
				t.Error(stride, bgr)
			}
		}
	}
}

func BenchmarkRawPlanes(b *testing.B) {
	ref := &robocache.FrameRef{
		Raw: &robocache.Raw{
			Pix:      make([]byte, 84*84*3),
			Height:   84,
			Width:    84,
			Channels: 3,
			DType:    robocache.Uint8,
		},
	}
	dst := make([]byte, 84*84*3)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		if err := DecodeImage(ref, &Spec{ChannelsFirst: true}, dst); err != nil {
			b.Fatal(err)
		}
	}
}
