package resize

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// noise returns interleaved pixels of a generator that the libraries' script has, too.
func noise(h, w int) []byte {
	out, v := make([]byte, 3*h*w), uint32(1)
	for i := range out {
		v = v*1664525 + 1013904223
		out[i] = byte(v >> 24)
	}
	return out
}

// planes returns interleaved pixels as planes.
func planes(pixels []byte) []byte {
	n := len(pixels) / 3
	out := make([]byte, 3*n)
	for i, v := range pixels {
		out[i%3*n+i/3] = v
	}
	return out
}

// scaled returns an interleaved random image, scaled from size[0] × size[1] to size[2] × size[3].
func scaled(t *testing.T, f Filter, size [4]int) []byte {
	t.Helper()
	h, w, toHeight, toWidth := size[0], size[1], size[2], size[3]
	s, err := New(f, h, w, toHeight, toWidth)
	if err != nil {
		t.Fatal(err)
	}
	src, out := planes(noise(h, w)), make([]byte, 3*toHeight*toWidth)
	for c := range 3 {
		dst := Plane{Pix: out[c:], Row: 3 * toWidth, Step: 3, Width: toWidth, Height: toHeight}
		s.Plane(dst, src[c*h*w:], w)
	}
	return out
}

// TestFiltersEqualTheirLibraries compares checksums with those of cv2 4.13, Pillow 12.3 and torch
// 2.11 (resize.C1, C2). python/tests/test_resize.py runs the libraries themselves.
func TestFiltersEqualTheirLibraries(t *testing.T) {
	sizes := [][4]int{
		{48, 64, 22, 23}, {23, 31, 40, 33}, {48, 64, 24, 32}, {40, 60, 20, 20}, {31, 17, 40, 9},
	}
	for f, sums := range map[Filter][5]uint32{
		CV2Area:        {0x2e75b2bc, 0x70c8a4cb, 0x7e4f0a1b, 0x6707c2b8, 0xfacc21c4},
		CV2Linear:      {0xd675c456, 0x6a05a736, 0x7e4f0a1b, 0x859b3206, 0xf8ea8e21},
		PILBilinear:    {0x389a5cdf, 0x7cc1ae72, 0x069dbe39, 0x2cf7304d, 0x6c410c77},
		PILLanczos:     {0xbc4b23b3, 0xa31004d9, 0xa49d5557, 0x1717bd64, 0x2dd6563c},
		TorchAntialias: {0x8045fd73, 0x7cc1ae72, 0x069dbe39, 0x2cf7304d, 0x07c856bc},
		Nearest:        {0x8eea7576, 0xf581f402, 0x1f0cede6, 0x0082d1ae, 0xb4d04298},
	} {
		for i, size := range sizes {
			if got := crc32.ChecksumIEEE(scaled(t, f, size)); got != sums[i] {
				t.Errorf("%s, %v: checksum %#08x, want %#08x", f, size, got, sums[i])
			}
		}
	}
}

// TestTensorFlowLanczos compares tf-lanczos3 with sums in float64.
func TestTensorFlowLanczos(t *testing.T) {
	weight := func(i, k, from, to int) float64 {
		scale := float64(from) / float64(to)
		x := (float64(k) + 0.5 - (float64(i)+0.5)*scale) / max(scale, 1)
		return lanczos3(x)
	}
	sum := func(i, from, to int, value func(k int) float64) float64 {
		total, weights := 0.0, 0.0
		for k := range from {
			w := weight(i, k, from, to)
			total, weights = total+w*value(k), weights+w
		}
		return total / weights
	}
	for _, size := range [][4]int{{48, 64, 22, 23}, {23, 31, 40, 33}, {31, 17, 40, 9}} {
		h, w, toHeight, toWidth := size[0], size[1], size[2], size[3]
		src, got := noise(h, w), scaled(t, TFLanczos3, size)
		differ := 0
		for i, v := range got {
			y, x, c := i/3/toWidth, i/3%toWidth, i%3
			want := sum(y, h, toHeight, func(row int) float64 {
				return sum(x, w, toWidth, func(k int) float64 {
					return float64(src[3*(row*w+k)+c])
				})
			})
			want = min(max(math.RoundToEven(want), 0), 255)
			if math.Abs(float64(v)-want) > 1 {
				t.Fatalf("%v: byte %d is %d, want %v", size, i, v, want)
			} else if float64(v) != want {
				differ++
			}
		}
		if 1000*differ > len(got) {
			t.Errorf("%v: %d of %d bytes differ", size, differ, len(got))
		}
	}
}

// TestPartOfAnImage checks that a part of the scaled image equals that part of the whole, as planes
// and as interleaved pixels, and that nothing is allocated per image (resize.C3).
func TestPartOfAnImage(t *testing.T) {
	const h, w, toHeight, toWidth = 37, 53, 29, 61
	for _, f := range Filters {
		whole := scaled(t, f, [4]int{h, w, toHeight, toWidth})
		s, _ := New(f, h, w, toHeight, toWidth)
		src := planes(noise(h, w))
		part := Plane{Row: 16, Step: 1, Left: 9, Top: 3, Width: 13, Height: 20}
		part.Pix = bytes.Repeat([]byte{7}, 16*20)
		run := func() { s.Plane(part, src, w) }
		run()
		for i, v := range part.Pix {
			y, x := i/16, i%16
			want := byte(7) // what the part does not cover
			if x < part.Width {
				want = whole[3*((y+part.Top)*toWidth+x+part.Left)]
			}
			if v != want {
				t.Fatalf("%s: row %d, column %d is %d, want %d", f, y, x, v, want)
			}
		}
		if n := testing.AllocsPerRun(20, run); n > 0.5 {
			t.Errorf("%s: %v allocations per plane", f, n)
		}
	}
}

// TestNewRejects checks the errors of New.
func TestNewRejects(t *testing.T) {
	if _, err := New("cv2-cubic", 2, 2, 2, 2); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	for _, size := range [][4]int{{0, 2, 2, 2}, {2, 2, 2, -1}, {2, 2, MaxSide + 1, 2}} {
		_, err := New(Nearest, size[0], size[1], size[2], size[3])
		if !errors.Is(err, robocache.ErrResourceLimit) {
			t.Errorf("%v: %v", size, err)
		}
	}
}

// BenchmarkScale scales 640×480 to 224×224, three planes.
func BenchmarkScale(b *testing.B) {
	src, out := planes(noise(480, 640)), make([]byte, 3*224*224)
	for _, f := range Filters {
		b.Run(string(f), func(b *testing.B) {
			s, err := New(f, 480, 640, 224, 224)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for range b.N {
				for c := range 3 {
					dst := Plane{Pix: out[c*224*224:], Row: 224, Step: 1, Width: 224, Height: 224}
					s.Plane(dst, src[c*640*480:], 640)
				}
			}
		})
	}
}
