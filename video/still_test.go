package video

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/video/turbojpeg"
)

// TestStillsEqualPIL compares with images that PIL decoded (testdata/still/make.py). All are
// bit-identical, except for JPEG's inverse DCT.
func TestStillsEqualPIL(t *testing.T) {
	paths, _ := filepath.Glob("testdata/still/*.raw")
	if len(paths) < 20 {
		t.Fatalf("%d frames", len(paths))
	}
	for _, p := range paths {
		name := strings.TrimSuffix(filepath.Base(p), ".raw")
		want, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		enc, err := os.ReadFile(strings.TrimSuffix(p, ".raw"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := StillSize(enc)
		if err != nil || info.Width != 21 || info.Height != 13 {
			t.Errorf("%s: %+v %v", name, info, err)
			continue
		}
		spec := &Spec{Pixel: RGB8}
		switch info.DType {
		case robocache.Uint16:
			spec.Pixel = Gray16
		case robocache.Float32:
			// the values are unchanged
			spec.Pixel, spec.Depth = DepthMM, &robocache.Depth{Unit: "mm"}
		}
		n, err := StillBytes(info, spec)
		if err != nil || n != len(want) {
			t.Errorf("%s: %d bytes, PIL has %d (%v)", name, n, len(want), err)
			continue
		}
		got := make([]byte, n)
		if err := DecodeStill(enc, spec, got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		most := 0
		for i := range got {
			most = max(most, int(got[i])-int(want[i]), int(want[i])-int(got[i]))
		}
		allowed := 0
		if info.Format == "jpeg" && !turbojpeg.Native() {
			allowed = 4
		}
		if most > allowed {
			t.Errorf("%s: %d levels from PIL, at most %d expected", name, most, allowed)
		}
		t.Logf(
			"%-16s %s, %d channels, %s: at most %d from PIL",
			name,
			info.Format,
			info.Channels,
			info.DType,
			most,
		)
	}
}

func TestStillDelivery(t *testing.T) {
	enc, err := os.ReadFile("testdata/still/rgb.png")
	if err != nil {
		t.Fatal(err)
	}
	hwc, _ := os.ReadFile("testdata/still/rgb.png.raw")
	const w, h = 21, 13
	chw := make([]byte, len(hwc))
	if err := DecodeStill(enc, &Spec{ChannelsFirst: true}, chw); err != nil {
		t.Fatal(err)
	}
	floats := make([]byte, 4*len(hwc))
	if err := DecodeStill(enc, &Spec{Pixel: RGBFloat32, ChannelsFirst: true}, floats); err != nil {
		t.Fatal(err)
	}
	for i := range w * h {
		for c := range 3 {
			v := hwc[3*i+c]
			f := math.Float32frombits(binary.LittleEndian.Uint32(floats[4*(c*w*h+i):]))
			if chw[c*w*h+i] != v || f != float32(v)/255 {
				t.Fatalf("pixel %d channel %d", i, c)
			}
		}
	}
	half := make([]byte, 10*6*3)
	if err := DecodeStill(enc, &Spec{Width: 10, Height: 6}, half); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(half, make([]byte, len(half))) {
		t.Error("the scaled frame is empty")
	}
	if err := DecodeStill(enc, &Spec{}, half); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("wrong length: %v", err)
	}
	depth, _ := os.ReadFile("testdata/still/f32_raw.tif")
	raw, _ := os.ReadFile("testdata/still/f32_raw.tif.raw")
	mm := make([]byte, len(raw))
	if err := DecodeStill(depth, &Spec{Pixel: DepthMM}, mm); err != nil {
		t.Fatal(err)
	}
	at := func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[40:])) }
	if at(mm) != at(raw)*1000 {
		t.Errorf("%v mm of %v m", at(mm), at(raw))
	}
	for _, name := range []string{"i16_raw.tif", "f32_raw.tif", "grey16.png"} {
		b, _ := os.ReadFile("testdata/still/" + name)
		if err := DecodeStill(b, &Spec{}, make([]byte, w*h*3)); !errors.Is(err,
			robocache.ErrUnsupported) {
			t.Errorf("%s as RGB: %v", name, err)
		}
	}
}

// TestStillBombs: an image is rejected by the size in its header, before its pixels are allocated
// (video.V8).
func TestStillBombs(t *testing.T) {
	png, _ := os.ReadFile("testdata/still/rgb.png")
	big := slices.Clone(png)
	be.PutUint32(big[16:], 1<<30)
	be.PutUint32(big[20:], 1<<30)
	jpg, _ := os.ReadFile("testdata/still/420.jpg")
	wide := slices.Clone(jpg)
	i := bytes.Index(wide, []byte{0xff, 0xc0})
	be.PutUint32(wide[i+5:], 1<<32-1)
	tif, _ := os.ReadFile("testdata/still/f32_raw.tif")
	for name, b := range map[string][]byte{"png": big, "jpeg": wide} {
		before := allocated()
		err := DecodeStill(b, &Spec{}, nil)
		if !errors.Is(err, robocache.ErrResourceLimit) || allocated()-before > 1<<20 {
			t.Errorf("%s: %v, %d bytes", name, err, allocated()-before)
		}
	}
	for name, b := range map[string][]byte{
		"empty": nil,
		"text":  []byte("hello world"),
		"LFS":   []byte("version https://git-lfs.github.com/spec/v1\n"),
	} {
		if _, err := StillSize(b); err == nil {
			t.Errorf("%s is a frame", name)
		}
	}
	// Truncated at every offset: an error or the frame, never a panic.
	for _, b := range [][]byte{png, jpg, tif} {
		info, _ := StillSize(b)
		spec := &Spec{}
		if info.DType == robocache.Float32 {
			spec.Pixel = DepthMM
		}
		n, _ := StillBytes(info, spec)
		dst := make([]byte, n)
		for cut := range len(b) - 16 {
			hostile.Typed(t, DecodeStill(b[:cut], spec, dst))
		}
	}
}

func FuzzDecodeStill(f *testing.F) {
	for _, name := range []string{
		"rgb.png",
		"420.jpg",
		"i16_strips.tif",
		"f32_lzw.tif",
		"palette.png",
	} {
		b, err := os.ReadFile("testdata/still/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := StillSize(b)
		if err != nil || info.Width*info.Height > 1<<16 {
			return
		}
		for _, pixel := range []Pixel{RGB8, Gray16, DepthMM} {
			spec := &Spec{Pixel: pixel}
			n, err := StillBytes(info, spec)
			if err != nil {
				t.Fatal(err)
			}
			hostile.Typed(t, DecodeStill(b, spec, make([]byte, n)))
		}
	})
}
