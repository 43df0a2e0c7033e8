//go:build cgo

package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/goatnote-inc/robocache/video"
)

func convert(t testing.TB, d *decoder, spec video.Spec) []byte {
	t.Helper()
	n, err := d.frame.Bytes(&spec)
	if err != nil {
		t.Fatal(err)
	}
	const guard = 64
	buf := bytes.Repeat([]byte{0xA5}, n+2*guard)
	if err := d.frame.Convert(&spec, buf[guard:guard+n:guard+n]); err != nil {
		t.Fatal(err)
	}
	for i := range guard {
		if buf[i] != 0xA5 || buf[guard+n+i] != 0xA5 {
			t.Fatalf("written outside the destination")
		}
	}
	return buf[guard : guard+n]
}

// alike reports whether swscale has the numbers of x86-64 on this machine. On others TestGolden
// checks the kernel.
const alike = runtime.GOARCH == "amd64"

func asksSwscale(t *testing.T) {
	if !alike {
		t.Skip("here the kernel gives what swscale gives on x86-64")
	}
}

// ffmpeg.F1: the vector kernel gives swscale's bytes for each matrix and range, at every kind of
// width.
func TestKernelEqualsSwscale(t *testing.T) {
	asksSwscale(t)
	for _, matrix := range []int{1, 2, 4, 5, 6, 7, 9, 10} {
		for _, full := range []bool{false, true} {
			for i, size := range [][2]int{
				{640, 480},
				{256, 64},
				{84, 84},
				{100, 50},
				{150, 150},
				{322, 240},
				{33, 18},
				{31, 16},
				{32, 2},
				{34, 4},
				{2, 2},
				{97, 30},
				{101, 2},
				{1280, 6},
			} {
				d := synthetic(size[0], size[1], "yuv420p", matrix, full, uint32(i*31+matrix))
				for _, px := range []video.Pixel{video.RGB8, video.RGBFloat32} {
					spec := video.Spec{Pixel: px, ChannelsFirst: true}
					d.frame.swscale = false
					fast := convert(t, d, spec)
					d.frame.swscale = true
					if !bytes.Equal(fast, convert(t, d, spec)) {
						t.Errorf(
							"matrix %d, full range %v, %v, pixel %d: not equal to swscale",
							matrix,
							full,
							size,
							px,
						)
					}
				}
				d.Close()
			}
		}
	}
}

// The test covers all values: frames of ramps contain all pairs of extreme luma and chroma.
func TestKernelAllValues(t *testing.T) {
	asksSwscale(t)
	for _, matrix := range []int{1, 5, 9} {
		for _, full := range []bool{false, true} {
			for seed := range uint32(8) {
				d := synthetic(1024, 1024, "yuv420p", matrix, full, seed+100)
				spec := video.Spec{Pixel: video.RGB8, ChannelsFirst: true}
				fast := convert(t, d, spec)
				d.frame.swscale = true
				if !bytes.Equal(fast, convert(t, d, spec)) {
					t.Errorf("matrix %d, full %v, seed %d differ", matrix, full, seed)
				}
				d.Close()
			}
		}
	}
}

var formats = []string{
	"yuv420p",
	"yuvj420p",
	"yuv422p",
	"yuvj422p",
	"yuv444p",
	"yuvj444p",
	"yuv420p10le",
	"yuv422p10le",
	"yuv444p12le",
	"gray",
	"gray10le",
	"gray12le",
	"gbrp",
}

// All layouts contain the same frame: CHW is the transpose of HWC, floats are bytes / 255, and
// every byte is written (ffmpeg.F3).
func TestLayouts(t *testing.T) {
	for _, format := range formats {
		for _, size := range [][2]int{{84, 84}, {322, 18}, {33, 17}, {7, 5}, {64, 64}, {243, 192}} {
			w, h := size[0], size[1]
			d := synthetic(w, h, format, 5, false, 3)
			if got := d.frame.PixelFormat(); got != format {
				t.Errorf("format %s, want %s", got, format)
			}
			hwc := convert(t, d, video.Spec{Pixel: video.RGB8})
			d.frame.swscale = alike
			chw := convert(t, d, video.Spec{Pixel: video.RGB8, ChannelsFirst: true})
			fhwc := convert(t, d, video.Spec{Pixel: video.RGBFloat32})
			fchw := convert(t, d, video.Spec{Pixel: video.RGBFloat32, ChannelsFirst: true})
			for i := range w * h {
				for c := range 3 {
					v := hwc[3*i+c]
					if chw[c*w*h+i] != v {
						t.Fatalf("%s %v: CHW differs at %d, channel %d", format, size, i, c)
					}
					want := math.Float32bits(float32(v) / 255)
					if binary.LittleEndian.Uint32(fhwc[4*(3*i+c):]) != want ||
						binary.LittleEndian.Uint32(fchw[4*(c*w*h+i):]) != want {
						t.Fatalf("%s %v: float differs at %d, channel %d", format, size, i, c)
					}
				}
			}
			d.Close()
		}
	}
}

// ffmpeg.F8: four rotations by 90 degrees return the original frame, and corners move clockwise.
func TestRotation(t *testing.T) {
	for _, chw := range []bool{true, false} {
		for _, px := range []video.Pixel{video.RGB8, video.RGBFloat32} {
			d := synthetic(6, 4, "yuv444p", 5, false, 9)
			spec := video.Spec{Pixel: px, ChannelsFirst: chw}
			plain := convert(t, d, spec)
			size := len(plain) / (3 * 24)
			at := func(b []byte, w, h, x, y, c int) []byte {
				i := (y*w+x)*3 + c
				if chw {
					i = c*w*h + y*w + x
				}
				return b[i*size : (i+1)*size]
			}
			for _, deg := range []int{90, 180, 270} {
				d.rotation = deg
				setRotation(d, deg)
				w, h := d.frame.Size()
				if want := [2]int{
					6,
					4,
				}; deg == 180 && [2]int{w, h} != want ||
					deg != 180 && [2]int{h, w} != want {
					t.Fatalf("size %d×%d at %d degrees", w, h, deg)
				}
				got := convert(t, d, spec)
				for y := range 4 {
					for x := range 6 {
						for c := range 3 {
							tx, ty := 3-y, x // clockwise
							switch deg {
							case 180:
								tx, ty = 5-x, 3-y
							case 270:
								tx, ty = y, 5-x
							}
							if !bytes.Equal(at(got, w, h, tx, ty, c), at(plain, 6, 4, x, y, c)) {
								t.Fatalf(
									"%d degrees, chw %v: pixel (%d,%d) is not at (%d,%d)",
									deg,
									chw,
									x,
									y,
									tx,
									ty,
								)
							}
						}
					}
				}
			}
			d.Close()
		}
	}
}

// Depth codes are those of the luma plane. A format without luma is rejected by name.
func TestLuma(t *testing.T) {
	d := synthetic(13, 7, "gray12le", 2, false, 4)
	planes := convert(t, d, video.Spec{Pixel: video.YUVPlanes})
	if !bytes.Equal(planes, convert(t, d, video.Spec{Pixel: video.Gray16})) {
		t.Error("gray12le: Gray16 is not the plane")
	}
	d.Close()
	d = synthetic(13, 7, "gray", 2, false, 4)
	planes = convert(t, d, video.Spec{Pixel: video.YUVPlanes})
	codes := convert(t, d, video.Spec{Pixel: video.Gray16})
	for i, v := range planes {
		if binary.LittleEndian.Uint16(codes[2*i:]) != uint16(v) {
			t.Fatal("gray: Gray16 is not the plane widened")
		}
	}
	d.Close()
	d = synthetic(13, 7, "gbrp", 2, false, 4)
	if _, err := d.frame.Bytes(&video.Spec{Pixel: video.Gray16}); !isUnsupported(err) {
		t.Errorf("gbrp as codes: %v", err)
	}
	if _, err := d.frame.Bytes(&video.Spec{
		Pixel: video.DepthMM, Width: 20,
		Height: 20,
	}); !isUnsupported(err) {
		t.Errorf("scaled depth: %v", err)
	}
	d.Close()
}

// A scaled frame depends only on the frame.
func TestScaled(t *testing.T) {
	for _, size := range [][2]int{{224, 224}, {84, 84}, {33, 21}, {640, 480}, {1, 1}} {
		d := synthetic(320, 240, "yuv420p", 5, false, 4)
		chw := convert(
			t,
			d,
			video.Spec{Pixel: video.RGB8, ChannelsFirst: true, Width: size[0], Height: size[1]},
		)
		hwc := convert(t, d, video.Spec{Pixel: video.RGB8, Width: size[0], Height: size[1]})
		n := size[0] * size[1]
		if len(chw) != 3*n {
			t.Fatalf("%d bytes for %v", len(chw), size)
		}
		for i := range n {
			if chw[i] != hwc[3*i] || chw[n+i] != hwc[3*i+1] || chw[2*n+i] != hwc[3*i+2] {
				t.Fatalf("%v: layouts differ", size)
			}
		}
		d.Close()
	}
}

func TestMisuse(t *testing.T) {
	d := synthetic(8, 8, "yuv420p", 5, false, 4)
	for _, spec := range []video.Spec{
		{Width: -1, Height: 4},
		{Width: 1 << 20, Height: 1 << 20},
		{Pixel: 99},
		{Pixel: video.DepthMM},
		{Width: 5},
	} {
		if _, err := d.frame.Bytes(&spec); err == nil {
			t.Errorf("%+v accepted", spec)
		}
	}
	if err := d.frame.Convert(&video.Spec{}, make([]byte, 3)); err == nil {
		t.Error("short destination accepted")
	}
	d.Close()
	if err := d.frame.Convert(&video.Spec{Width: 8, Height: 8}, nil); err == nil {
		t.Error("closed decoder accepted")
	}
}

func BenchmarkConvert(b *testing.B) {
	for _, fast := range []bool{true, false} {
		for _, spec := range []video.Spec{
			{Pixel: video.RGB8, ChannelsFirst: true},
			{Pixel: video.RGB8},
			{Pixel: video.RGBFloat32, ChannelsFirst: true},
			{Pixel: video.RGB8, ChannelsFirst: true, Width: 224, Height: 224},
		} {
			b.Run(
				fmt.Sprintf(
					"fast=%v/pixel=%d/chw=%v/%d",
					fast,
					spec.Pixel,
					spec.ChannelsFirst,
					spec.Width,
				),
				func(b *testing.B) {
					d := synthetic(640, 480, "yuv420p", 5, false, 1)
					defer d.Close()
					d.frame.swscale = !fast
					n, _ := d.frame.Bytes(&spec)
					dst := make([]byte, n)
					b.ReportAllocs()
					b.SetBytes(640 * 480)
					for b.Loop() {
						if err := d.frame.Convert(&spec, dst); err != nil {
							b.Fatal(err)
						}
					}
				},
			)
		}
	}
}
