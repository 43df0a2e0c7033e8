package video

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// rawOf returns a raw image with noise in the padding between rows.
func rawOf(dtype robocache.DType, h, w, channels, pad int, bgr bool) *robocache.Raw {
	r := &robocache.Raw{Height: h, Width: w, Channels: channels, DType: dtype, BGR: bgr}
	row := w * channels * dtype.Size()
	rng := rand.New(rand.NewPCG(uint64(h), uint64(w)))
	r.Pix = make([]byte, (row+pad)*h)
	for i := range r.Pix {
		r.Pix[i] = byte(rng.Uint32())
	}
	if dtype == robocache.Float32 {
		for y := range h {
			for x := range w {
				binary.LittleEndian.PutUint32(
					r.Pix[y*(row+pad)+4*x:],
					math.Float32bits(float32(rng.IntN(4000))/1000),
				)
			}
		}
	}
	if pad > 0 {
		r.Stride = row + pad
		r.Pix = r.Pix[:len(r.Pix)-pad] // the last row has no padding
	}
	return r
}

// element returns an element of a raw image, as the contract of Raw defines it.
func element(r *robocache.Raw, y, x, c int) float64 {
	size := r.DType.Size()
	stride := r.Stride
	if stride == 0 {
		stride = r.Width * r.Channels * size
	}
	p := r.Pix[y*stride+(x*r.Channels+c)*size:]
	switch r.DType {
	case robocache.Uint8:
		return float64(p[0])
	case robocache.Uint16:
		return float64(binary.LittleEndian.Uint16(p))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
}

func TestRawFrames(t *testing.T) {
	const h, w = 7, 11
	for _, dtype := range []robocache.DType{robocache.Uint8, robocache.Uint16} {
		for _, channels := range []int{1, 3, 4} {
			for _, pad := range []int{0, 5} {
				for _, bgr := range []bool{false, true} {
					r := rawOf(dtype, h, w, channels, pad, bgr)
					ref := &robocache.FrameRef{Raw: r}
					info, err := ImageSize(ref)
					if err != nil || info.Width != w || info.Height != h {
						t.Fatalf("%+v %v", info, err)
					}
					dst := make([]byte, 3*w*h)
					if channels == 1 && dtype == robocache.Uint16 {
						if err := DecodeImage(ref, &Spec{}, dst); !errors.Is(err,
							robocache.ErrUnsupported) {
							t.Errorf("depth as RGB: %v", err)
						}
						continue
					}
					if err := DecodeImage(ref, &Spec{}, dst); err != nil {
						t.Fatal(err)
					}
					encoded, err := EncodeImage(ref)
					if err != nil {
						t.Fatal(err)
					}
					again := make([]byte, len(dst))
					if err := DecodeStill(encoded, &Spec{}, again); err != nil ||
						!bytes.Equal(again, dst) {
						t.Errorf("%s×%d through PNG: %v", dtype, channels, err)
					}
					for i, got := range dst {
						c := i % 3
						switch {
						case channels == 1:
							c = 0
						case bgr:
							c = 2 - c
						}
						want := element(r, i/3/w, i/3%w, c)
						if dtype == robocache.Uint16 {
							want = math.Floor(want / 256)
						}
						if float64(got) != want {
							t.Fatalf(
								"%s×%d pad %d bgr %v: byte %d is %d, not %v",
								dtype,
								channels,
								pad,
								bgr,
								i,
								got,
								want,
							)
						}
					}
				}
			}
		}
	}
}

func TestRawDepth(t *testing.T) {
	const h, w = 5, 9
	for _, pad := range []int{0, 3} {
		for _, dtype := range []robocache.DType{
			robocache.Uint8,
			robocache.Uint16,
			robocache.Float32,
		} {
			ref := &robocache.FrameRef{Raw: rawOf(dtype, h, w, 1, pad, false)}
			mm := make([]byte, 4*w*h)
			if err := DecodeImage(ref, &Spec{Pixel: DepthMM}, mm); err != nil {
				t.Fatal(err)
			}
			m := make([]byte, 4*w*h)
			if err := DecodeImage(ref, &Spec{Pixel: DepthM}, m); err != nil {
				t.Fatal(err)
			}
			codes := make([]byte, 2*w*h)
			err := DecodeImage(ref, &Spec{Pixel: Gray16}, codes)
			if (dtype == robocache.Float32) != errors.Is(err, robocache.ErrUnsupported) {
				t.Errorf("%s as codes: %v", dtype, err)
			}
			for i := range w * h {
				v := element(ref.Raw, i/w, i%w, 0)
				if dtype != robocache.Float32 &&
					float64(binary.LittleEndian.Uint16(codes[2*i:])) != v {
					t.Fatalf("%s pixel %d: code", dtype, i)
				}
				want := float32(v)
				if dtype == robocache.Float32 {
					want *= 1000
				}
				if got := math.Float32frombits(binary.LittleEndian.Uint32(mm[4*i:])); got != want {
					t.Fatalf("%s pixel %d: %v mm, not %v", dtype, i, got, want)
				}
				// float meters are returned unchanged
				if want = float32(v); dtype != robocache.Float32 {
					want /= 1000
				}
				if got := math.Float32frombits(binary.LittleEndian.Uint32(m[4*i:])); got != want {
					t.Fatalf("%s pixel %d: %v m, not %v", dtype, i, got, want)
				}
			}
			const small, narrow = 3, 4 // scaled to the nearest pixel
			less := make([]byte, 4*small*narrow)
			if err := DecodeImage(ref, &Spec{Pixel: DepthMM, Height: small, Width: narrow},
				less); err != nil {
				t.Fatal(err)
			}
			for i := range small * narrow {
				at := (2*(i/narrow)+1)*h/(2*small)*w + (2*(i%narrow)+1)*w/(2*narrow)
				if !bytes.Equal(less[4*i:][:4], mm[4*at:][:4]) {
					t.Fatalf("%s, smaller: pixel %d is not that of %d", dtype, i, at)
				}
			}
			encoded, err := EncodeImage(ref)
			if err != nil {
				t.Fatal(err)
			}
			again := make([]byte, len(mm))
			if err := DecodeStill(encoded, &Spec{Pixel: DepthM}, again); err != nil ||
				!bytes.Equal(again, m) {
				t.Errorf("%s through a file, metres: %v", dtype, err)
			}
			if err := DecodeStill(encoded, &Spec{Pixel: DepthMM}, again); err != nil ||
				!bytes.Equal(again, mm) {
				t.Errorf("%s through a file: %v", dtype, err)
			}
		}
	}
}

func TestRawThatLies(t *testing.T) {
	ok := rawOf(robocache.Uint8, 4, 4, 3, 0, false)
	for name, change := range map[string]func(r *robocache.Raw){
		"short":          func(r *robocache.Raw) { r.Pix = r.Pix[:len(r.Pix)-1] },
		"none":           func(r *robocache.Raw) { r.Pix = nil },
		"stride":         func(r *robocache.Raw) { r.Stride = 11 },
		"negative":       func(r *robocache.Raw) { r.Stride = -12 },
		"huge":           func(r *robocache.Raw) { r.Height = 1 << 30 },
		"huge both":      func(r *robocache.Raw) { r.Height, r.Width = 1<<30, 1<<30 },
		"over int":       func(r *robocache.Raw) { r.Width = math.MaxInt },
		"no rows":        func(r *robocache.Raw) { r.Height = 0 },
		"two channels":   func(r *robocache.Raw) { r.Channels = 2 },
		"float colour":   func(r *robocache.Raw) { r.DType = robocache.Float32 },
		"wide stride":    func(r *robocache.Raw) { r.Stride = math.MaxInt },
		"stride too far": func(r *robocache.Raw) { r.Stride = 13 },
	} {
		r := *ok
		change(&r)
		err := DecodeImage(&robocache.FrameRef{Raw: &r}, &Spec{}, make([]byte, 48))
		if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrUnsupported) &&
			!errors.Is(err, robocache.ErrResourceLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ImageSize(&robocache.FrameRef{Path: "a.mp4"}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
}
