package video

import (
	"bytes"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// pngsOf returns PNGs of all colors and depths that the standard library writes, of smooth, noisy
// and striped images, so that all filters occur.
func pngsOf(t testing.TB, w, h int) map[string][]byte {
	rng := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	at := image.Rect(0, 0, w, h)
	pixel := func(style, x, y int) color.NRGBA64 {
		v := func(c int) uint16 {
			switch style {
			case 0:
				return uint16((x*(300+c*50) + y*(170+c*90)) % 65536)
			case 1:
				return uint16(rng.Uint32())
			}
			return uint16((x/3+c)%2*40000 + y*100 + rng.IntN(900))
		}
		return color.NRGBA64{v(0), v(1), v(2), v(3) | 0x0100}
	}
	type settable interface {
		image.Image
		Set(x, y int, c color.Color)
	}
	gen := map[string]func() settable{
		"grey":   func() settable { return image.NewGray(at) },
		"grey16": func() settable { return image.NewGray16(at) },
		"rgba":   func() settable { return image.NewNRGBA(at) },
		"rgba64": func() settable { return image.NewNRGBA64(at) },
	}
	for _, n := range []int{2, 4, 16, 200} {
		gen["palette"+string(rune('a'+n%26))] = func() settable {
			var p color.Palette
			for i := range n {
				p = append(
					p,
					color.NRGBA{byte(i * 37), byte(i * 91), byte(255 - i), 255 - byte(i%3*100)},
				)
			}
			return image.NewPaletted(at, p)
		}
	}
	for name, opaque := range map[string]func() settable{
		"rgb":   func() settable { return image.NewRGBA(at) },
		"rgb64": func() settable { return image.NewRGBA64(at) },
	} {
		gen[name] = opaque
	}
	out := map[string][]byte{}
	for name, f := range gen {
		for style := range 3 {
			for _, level := range []png.CompressionLevel{
				png.DefaultCompression,
				png.BestSpeed,
				png.NoCompression,
			} {
				m := f()
				for y := range h {
					for x := range w {
						c := pixel(style, x, y)
						if name == "rgb" || name == "rgb64" {
							c.A = 0xffff
						}
						m.Set(x, y, c)
					}
				}
				var b bytes.Buffer
				if err := (&png.Encoder{CompressionLevel: level}).Encode(&b, m); err != nil {
					t.Fatal(err)
				}
				out[name+string(rune('0'+style))+string(rune('0'-int(level)))] = b.Bytes()
			}
		}
	}
	return out
}

// samePNG decodes by the fast path and by the standard library. If the fast path accepts a file,
// both must agree. whole is the image before it was damaged, or nil.
func samePNG(t *testing.T, name string, b, whole []byte) (taken bool) {
	t.Helper()
	info, err := StillSize(b)
	if err != nil || info.Format != "png" || info.Width*info.Height > 1<<16 {
		return false
	}
	got := make([]byte, 3*info.Width*info.Height)
	taken = fastPNG(b, info, got)
	grey := make([]byte, info.Width*info.Height*info.DType.Size())
	greyTaken := info.Channels == 1 && fastGreyPNG(b, info, grey)
	if !taken && !greyTaken {
		return false
	}
	img, err := decodeImage(b, info)
	if err != nil {
		// libdeflate accepts a block whose distance code is incomplete, but the standard library
		// does not. The checksum matches, so the result must be the undamaged image.
		if whole == nil {
			t.Fatalf("%s: taken, but: %v", name, err)
		}
		if img, err = decodeImage(whole, info); err != nil {
			return taken // a fuzzer's input: the undamaged image is unknown
		}
	}
	want := make([]byte, len(got))
	packRGB(img, want)
	if taken && !bytes.Equal(got, want) {
		t.Fatalf("%s: %v %d×%d: RGB differs", name, info, info.Width, info.Height)
	}
	if !greyTaken {
		return taken
	}
	for i := range info.Width * info.Height {
		x, y := i%info.Width, i/info.Width
		r, g, _, _ := img.At(x, y).RGBA()
		if n, ok := img.(*image.NRGBA); ok { // grey with one transparent color
			r = uint32(n.NRGBAAt(x, y).R) * 257
			g = r
		} else if n, ok := img.(*image.NRGBA64); ok {
			r = uint32(n.NRGBA64At(x, y).R)
			g = r
		}
		v := uint32(grey[i*len(grey)/(info.Width*info.Height)]) * 257
		if info.DType.Size() == 2 {
			v = uint32(grey[2*i]) | uint32(grey[2*i+1])<<8
		}
		if r != g || v != r {
			t.Fatalf("%s: grey %d at %d,%d is %d in the frame", name, v, x, y, r)
		}
	}
	return taken
}

func TestFastPNG(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {2, 3}, {7, 5}, {8, 8}, {13, 2}, {33, 21}, {100, 64}} {
		for name, b := range pngsOf(t, size[0], size[1]) {
			if !samePNG(t, name, b, nil) {
				t.Errorf("%s %v is not taken", name, size)
			}
		}
	}
	paths, _ := filepath.Glob("testdata/still/*.png")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if !samePNG(t, p, b, nil) {
			t.Errorf("%s is not taken", p)
		}
	}
}

// TestFastPNGDamaged: of damaged images the fast path accepts only those that the standard library
// accepts, or it returns the undamaged image.
func TestFastPNGDamaged(t *testing.T) {
	for name, b := range pngsOf(t, 9, 7) {
		for i := range b {
			samePNG(t, name, b[:i], b)
			bad := bytes.Clone(b)
			bad[i] ^= 1 << (i % 8)
			samePNG(t, name, bad, b)
			samePNG(t, name, sealed(bad), b)
		}
	}
}

// sealed returns a PNG with correct checksums for all chunks that can be parsed.
func sealed(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 8; at+12 <= len(b); {
		n := int(be.Uint32(b[at:]))
		if n > len(b)-at-12 {
			break
		}
		be.PutUint32(b[at+8+n:], crc32.ChecksumIEEE(b[at+4:at+8+n]))
		at += 12 + n
	}
	return b
}

// TestUnfilter compares each filter and pixel size on random rows with the definition.
func TestUnfilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for kind := byte(0); kind <= 4; kind++ {
		for n := 1; n <= 8; n++ {
			for _, size := range []int{n, 2 * n, 7 * n, 25 * n} {
				for _, first := range []bool{false, true} {
					raw, above := make([]byte, size), make([]byte, size)
					for i := range raw {
						raw[i], above[i] = byte(rng.Uint32()), byte(rng.Uint32())
					}
					if first {
						above = nil
					}
					coded := make([]byte, size)
					for i := range raw {
						var a, b, c int
						if i >= n {
							a = int(raw[i-n])
						}
						if above != nil {
							b = int(above[i])
							if i >= n {
								c = int(above[i-n])
							}
						}
						p := a + b - c
						d := func(v int) int { return max(p-v, v-p) }
						predict := [5]int{0, a, b, (a + b) / 2, c}[kind]
						if kind == 4 && d(a) <= d(b) && d(a) <= d(c) {
							predict = a
						} else if kind == 4 && d(b) <= d(c) {
							predict = b
						}
						coded[i] = raw[i] - byte(predict)
					}
					if !unfilterRow(kind, coded, above, n) || !bytes.Equal(coded, raw) {
						t.Fatalf(
							"filter %d, %d bytes a pixel, row of %d, first %v",
							kind,
							n,
							size,
							first,
						)
					}
				}
			}
		}
	}
	if unfilterRow(5, make([]byte, 3), nil, 1) {
		t.Error("filter 5 passed")
	}
}

func FuzzFastPNG(f *testing.F) {
	for _, b := range pngsOf(f, 5, 4) {
		if len(b) < 200 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		samePNG(t, "fuzzed", b, b)
		samePNG(t, "sealed", sealed(b), b)
	})
}

// BenchmarkPNG measures MB/s of RGB for 640×480 images that the standard library wrote.
func BenchmarkPNG(b *testing.B) {
	const w, h = 640, 480
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	rng := rand.New(rand.NewPCG(3, 4))
	for y := range h {
		for x := range w {
			m.SetRGBA(
				x,
				y,
				color.RGBA{
					byte(x/3 + y/5 + rng.IntN(4)),
					byte(x/4 + rng.IntN(4)),
					byte(y/2 + rng.IntN(4)),
					255,
				},
			)
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, m); err != nil {
		b.Fatal(err)
	}
	enc := file.Bytes()
	info, err := StillSize(enc)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 3*w*h)
	b.Run("fast", func(b *testing.B) {
		b.SetBytes(int64(len(dst)))
		b.ReportAllocs()
		for b.Loop() {
			if !fastPNG(enc, info, dst) {
				b.Fatal("not taken")
			}
		}
	})
	b.Run("stdlib", func(b *testing.B) {
		b.SetBytes(int64(len(dst)))
		for b.Loop() {
			img, err := decodeImage(enc, info)
			if err != nil {
				b.Fatal(err)
			}
			packRGB(img, dst)
		}
	})
}
