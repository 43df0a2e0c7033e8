package turbojpeg

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func needNative(t testing.TB) {
	if !Native() {
		t.Skip("libjpeg-turbo is not linked: make native")
	}
}

// TestEqualsPIL: every kind of JPEG that PIL and imagecodecs write is decoded bit-identical to PIL
// (turbojpeg.J1).
func TestEqualsPIL(t *testing.T) {
	needNative(t)
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if out, err := exec.Command(python, "-c", "import PIL, numpy").CombinedOutput(); err != nil {
		t.Skipf("no PIL in .venv: %v %s", err, out)
	}
	cmd := exec.Command(python, "testdata/pil.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(bytes.NewReader(out))
	next := func() []byte {
		var n uint32
		if err := binary.Read(r, binary.LittleEndian, &n); err == io.EOF {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	seen := 0
	for {
		name := next()
		if name == nil {
			break
		}
		data, size, want := next(), next(), next()
		w, h := int(binary.LittleEndian.Uint32(size)), int(binary.LittleEndian.Uint32(size[4:]))
		seen++
		got := make([]byte, 3*w*h)
		if err := Decode(got, data, w, h, 3); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(got, want) {
			n, most := 0, 0
			for i := range got {
				if d := int(got[i]) - int(want[i]); d != 0 {
					n, most = n+1, max(most, d, -d)
				}
			}
			t.Errorf("%s: %d of %d bytes differ, by at most %d", name, n, len(got), most)
		}
	}
	t.Logf("%d images", seen)
	if seen < 300 {
		t.Errorf("only %d images", seen)
	}
}

// sample returns a JPEG that the standard library encoded.
func sample(t testing.TB, w, h int, grey bool) []byte {
	var m image.Image
	if grey {
		g := image.NewGray(image.Rect(0, 0, w, h))
		for i := range g.Pix {
			g.Pix[i] = byte(i * i / 7)
		}
		m = g
	} else {
		c := image.NewRGBA(image.Rect(0, 0, w, h))
		for y := range h {
			for x := range w {
				c.SetRGBA(
					x,
					y,
					color.RGBA{byte(x * 3), byte(y * 5), byte(x*y/3 + (x*7+y*13)%31), 255},
				)
			}
		}
		m = c
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 85}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCut: an image truncated at any offset is rejected, unless only its end marker is missing
// (turbojpeg.J2). Nothing is written outside dst.
func TestCut(t *testing.T) {
	needNative(t)
	for _, grey := range []bool{false, true} {
		data := sample(t, 33, 21, grey)
		room := make([]byte, 3*33*21+64)
		dst := room[32 : 32+3*33*21]
		for n := range data {
			err := Decode(dst[:len(dst):len(dst)], data[:n], 33, 21, 3)
			if n < len(data)-2 && !errors.Is(err, robocache.ErrMalformed) {
				t.Fatalf("cut at %d of %d: %v", n, len(data), err)
			}
			if n >= len(data)-2 && err != nil {
				t.Errorf("without its end marker: %v", err)
			}
		}
		if !bytes.Equal(room[:32], make([]byte, 32)) ||
			!bytes.Equal(room[len(room)-32:], make([]byte, 32)) {
			t.Fatal("bytes outside of dst were written")
		}
	}
}

// TestHostile: changed headers and codes yield an error, or an image of the requested size, never a
// crash (turbojpeg.J3, turbojpeg.J4).
func TestHostile(t *testing.T) {
	needNative(t)
	data := sample(t, 24, 24, false)
	dst := make([]byte, 3*24*24)
	for i := range data {
		for _, v := range []byte{0, 1, 0x7f, 0xff, data[i] + 1, data[i] - 1} {
			bad := bytes.Clone(data)
			bad[i] = v
			err := Decode(dst, bad, 24, 24, 3)
			if err != nil && !errors.Is(err, robocache.ErrMalformed) &&
				!errors.Is(err, robocache.ErrUnsupported) {
				t.Fatalf("byte %d to %d: %v", i, v, err)
			}
		}
	}
	for _, size := range [][2]int{{25, 24}, {24, 23}, {1, 1}} {
		if err := Decode(make([]byte, 3*size[0]*size[1]), data, size[0], size[1],
			3); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("asked for %v: %v", size, err)
		}
	}
	if err := Decode(dst[:10], data, 24, 24, 3); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := Decode(make([]byte, 24*24), data, 24, 24, 1); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Errorf("color as grey: %v", err)
	}
	if err := Decode(dst, nil, 24, 24, 3); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}

func TestGrey(t *testing.T) {
	needNative(t)
	data := sample(t, 19, 11, true)
	rgb, one := make([]byte, 3*19*11), make([]byte, 19*11)
	if err := errors.Join(Decode(rgb, data, 19, 11, 3), Decode(one, data, 19, 11, 1)); err != nil {
		t.Fatal(err)
	}
	for i, v := range one {
		if rgb[3*i] != v || rgb[3*i+1] != v || rgb[3*i+2] != v {
			t.Fatalf("pixel %d", i)
		}
	}
}

// TestLeaks: neither valid nor damaged images leak memory, and threads may decode concurrently
// (turbojpeg.J4).
func TestLeaks(t *testing.T) {
	needNative(t)
	data := sample(t, 320, 240, false)
	bad := bytes.Clone(data[:len(data)/2])
	run := func(times int) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				dst := make([]byte, 3*320*240)
				for range times {
					if err := Decode(dst, data, 320, 240, 3); err != nil {
						t.Error(err)
					}
					if err := Decode(dst, bad, 320, 240, 3); err == nil {
						t.Error("half an image passed")
					}
				}
			})
		}
		wg.Wait()
	}
	run(50)
	// A leak grows in each round; memory that threads keep is allocated once.
	for try := 1; ; try++ {
		before := resident(t)
		run(300)
		grown := resident(t) - before
		if grown <= 16<<20 {
			break
		}
		if try == 3 {
			t.Fatalf("%d bytes more are resident after 2,400 images", grown)
		}
	}
}

func resident(t *testing.T) int64 {
	debug.FreeOSMemory() // excludes garbage of the Go heap
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	f := bytes.Fields(b)
	var n int64
	for _, c := range f[1] {
		n = n*10 + int64(c-'0')
	}
	return n * int64(os.Getpagesize())
}

// FuzzDecode decodes arbitrary bytes, with the size of their header or another one.
func FuzzDecode(f *testing.F) {
	needNative(f)
	for _, b := range [][]byte{sample(f, 9, 7, false), sample(f, 16, 16, true)} {
		f.Add(b, uint8(9), uint8(7))
		f.Add(b, uint8(16), uint8(16))
	}
	paths, _ := filepath.Glob("../testdata/still/*.jpg")
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			f.Add(b, uint8(21), uint8(13))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, w, h uint8) {
		if w == 0 || h == 0 {
			return
		}
		const guard = 64
		for _, channels := range []int{1, 3} {
			n := int(w) * int(h) * channels
			room := make([]byte, n+2*guard)
			_ = Decode(room[guard:guard+n], data, int(w), int(h), channels)
			for i := range guard {
				if room[i] != 0 || room[guard+n+i] != 0 {
					t.Fatal("bytes outside of dst were written")
				}
			}
		}
	})
}

// BenchmarkDecode measures MB/s of RGB for 640×480 4:2:0.
func BenchmarkDecode(b *testing.B) {
	const w, h = 640, 480
	data := sample(b, w, h, false)
	dst := make([]byte, 3*w*h)
	b.Run("libjpeg-turbo", func(b *testing.B) {
		needNative(b)
		b.SetBytes(int64(len(dst)))
		b.ReportAllocs()
		for b.Loop() {
			if err := Decode(dst, data, w, h, 3); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stdlib", func(b *testing.B) {
		b.SetBytes(int64(len(dst)))
		for b.Loop() {
			// the result is YCbCr; conversion and upsampling would take additional time
			if _, err := jpeg.Decode(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
