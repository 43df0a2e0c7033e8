//go:build cgo

package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// fenced returns n bytes that end at an inaccessible page.
func fenced(t testing.TB, n int) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	whole := (n + page - 1) / page * page
	m, err := syscall.Mmap(
		-1,
		0,
		whole+page,
		syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE,
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(m[whole:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	return m[whole-n : whole : whole]
}

// keep copies the planes of a frame to memory that ends at an inaccessible page.
func keep(t testing.TB, pic video.Frame) (video.PlaneInfo, []byte) {
	t.Helper()
	p := pic.(video.PlanarFrame)
	info, ok := p.PlaneInfo()
	if !ok {
		t.Fatalf("%s is not kept", pic.PixelFormat())
	}
	planes := fenced(t, info.Bytes())
	for i := range planes {
		planes[i] = 0xA5
	}
	if err := p.CopyPlanes(planes); err != nil {
		t.Fatal(err)
	}
	again, err := video.ParsePlaneInfo(info.Append(nil))
	if err != nil || again != info {
		t.Fatalf("%+v comes back as %+v, %v", info, again, err)
	}
	return info, planes
}

// specsFor returns all specs that a frame supports.
func specsFor(pic video.Frame) []video.Spec {
	var all []video.Spec
	for _, px := range []video.Pixel{video.RGB8, video.RGBFloat32} {
		for _, chw := range []bool{false, true} {
			for _, size := range [][2]int{{0, 0}, {24, 17}, {224, 224}, {90, 70}} {
				all = append(
					all,
					video.Spec{Pixel: px, ChannelsFirst: chw, Width: size[0], Height: size[1]},
				)
			}
		}
	}
	for _, px := range []video.Pixel{video.Gray16, video.DepthMM, video.DepthM, video.YUVPlanes} {
		spec := video.Spec{Pixel: px, Depth: &depthCodes[0]}
		if _, err := pic.Bytes(&spec); err == nil {
			all = append(all, spec)
		}
	}
	return all
}

func sameAsConvert(
	t testing.TB,
	pic video.Frame,
	info video.PlaneInfo,
	planes []byte,
	spec video.Spec,
) {
	t.Helper()
	n, err := pic.Bytes(&spec)
	if err != nil {
		t.Fatal(err)
	}
	shape := info.Shape()
	if m, err := shape.Bytes(&spec); m != n || err != nil {
		t.Fatalf("%+v %+v: %d bytes, the frame says %d (%v)", info, spec, m, n, err)
	}
	want := make([]byte, n)
	if err := pic.Convert(&spec, want); err != nil {
		t.Fatalf("%+v %+v: %v", info, spec, err)
	}
	const guard = 64
	buf := bytes.Repeat([]byte{0xA5}, n+2*guard)
	if err := video.ConvertPlanes(info, planes, &spec, buf[guard:guard+n]); err != nil {
		t.Fatalf("%+v %+v: %v", info, spec, err)
	}
	if !bytes.Equal(buf[guard:guard+n], want) {
		t.Errorf("%+v %+v: not the frame's own bytes", info, spec)
	}
	for i := range guard {
		if buf[i] != 0xA5 || buf[guard+n+i] != 0xA5 {
			t.Fatalf("%+v %+v: written outside the destination", info, spec)
		}
	}
}

// ffmpeg.F9: stored planes and the frame convert to the same bytes, for every format, width,
// rotation and spec.
func TestKeptPlanes(t *testing.T) {
	sizes := [][2]int{
		{64, 64},
		{84, 84},
		{33, 17},
		{322, 18},
		{7, 5},
		{1, 1},
		{2, 3},
		{3, 2},
		{5, 40},
		{97, 30},
		{160, 120},
		{250, 200},
	}
	if testing.Short() {
		sizes = sizes[:6]
	}
	for f := 1; f < video.PlaneFormats; f++ {
		name := video.PlaneFormatName(uint8(f))
		t.Run(name, func(t *testing.T) {
			for i, size := range sizes {
				if name == "gbrp" && size[0]%2 != 0 {
					continue
				}
				d := synthetic(
					size[0],
					size[1],
					name,
					[]int{1, 2, 5, 9, 0, 15, 255}[i%7],
					i%2 == 1,
					uint32(f*100+i),
				)
				for _, degrees := range []int{0, 90, 180, 270} {
					if degrees != 0 && i%3 != 0 {
						continue
					}
					d.rotation = degrees
					setRotation(d, degrees)
					info, planes := keep(t, &d.frame)
					if shape := info.Shape(); shape != d.frame.frameShape() {
						t.Fatalf("shape %+v, the frame's %+v", shape, d.frame.frameShape())
					}
					for _, spec := range specsFor(&d.frame) {
						sameAsConvert(t, &d.frame, info, planes, spec)
					}
				}
				d.Close()
			}
		})
	}
}

// A format that cannot be stored is reported.
func TestNotKept(t *testing.T) {
	for _, format := range []string{"rgb24", "yuyv422", "nv12", "yuva420p", "pal8", "yuv420p10be"} {
		d := synthetic(16, 8, format, 5, false, 1)
		if info, ok := d.frame.PlaneInfo(); ok {
			t.Errorf("%s is kept as %+v", format, info)
		}
		if err := d.frame.CopyPlanes(nil); !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("%s: %v", format, err)
		}
		d.Close()
	}
	d := synthetic(16, 8, "yuv420p", 300, false, 1)
	if info, ok := d.frame.PlaneInfo(); ok {
		t.Errorf("matrix 300 is kept as %+v", info)
	}
	d.Close()
	d = synthetic(17, 8, "gbrp", 5, false, 1)
	if info, ok := d.frame.PlaneInfo(); ok {
		t.Errorf("gbrp of odd width is kept as %+v", info)
	}
	d.Close()
	if err := d.frame.CopyPlanes(nil); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("closed: %v", err)
	}
	d = synthetic(16, 8, "yuv420p", 5, false, 1)
	defer d.Close()
	if err := d.frame.CopyPlanes(make([]byte, 7)); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("short destination: %v", err)
	}
}

// Stored planes contain only bytes of the frame: equal frames give equal bytes.
func TestKeptPlanesAreDeterministic(t *testing.T) {
	d := synthetic(33, 17, "yuv420p", 5, false, 1)
	defer d.Close()
	info, a := keep(t, &d.frame)
	b := make([]byte, info.Bytes())
	if err := d.frame.CopyPlanes(b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("padding holds what was there before")
	}
}

// ffmpeg.F9 on real frames: the committed clips, and depth and color videos of the test data.
func TestKeptPlanesOfClips(t *testing.T) {
	paths, _ := filepath.Glob(filepath.Join("testdata", "odd", "*.mp4"))
	if data := realVideos(t); len(data) > 0 {
		paths = append(paths, data...)
	}
	for _, path := range paths {
		f := acquire(t, path)
		n := min(f.Index.NumFrames(), 4)
		err := newPool(
			t,
			0,
		).Decode(context.Background(), f, nil, video.Plan(
			f.Index,
			upTo(n),
		), func(k int, pic video.Frame) error {
			info, planes := keep(t, pic)
			for _, spec := range specsFor(pic) {
				if strings.HasPrefix(path, "testdata") || spec.Width == 0 || spec.Width == 224 {
					sameAsConvert(t, pic, info, planes, spec)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// realVideos returns a few files of each codec of the test data.
func realVideos(t *testing.T) []string {
	var paths []string
	for _, pattern := range []string{
		"g1_v30_exact/videos/*/*/*.mp4",
		"g1_h264_v30/videos/*/*/*.mp4",
		"gr00t_picknplace_v20/videos/*/*/*.mp4",
	} {
		found, _ := filepath.Glob(filepath.Join(dataDir(t), pattern))
		paths = append(paths, found[:min(len(found), 2)]...)
	}
	return paths
}

// Concurrent conversions of different shapes give the same results as alone.
func TestKeptPlanesConcurrently(t *testing.T) {
	type one struct {
		info         video.PlaneInfo
		planes, want []byte
		spec         video.Spec
	}
	var all []one
	for i, format := range []string{"yuv420p", "yuv444p", "gray12le", "yuv420p10le"} {
		d := synthetic(66+i, 50, format, 5, false, uint32(i))
		info, planes := keep(t, &d.frame)
		for _, spec := range specsFor(&d.frame) {
			all = append(all, one{info, planes, convert(t, d, spec), spec})
		}
		d.Close()
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3 * len(all) {
				o := &all[(i*7+g*5)%len(all)]
				dst := make([]byte, len(o.want))
				if err := video.ConvertPlanes(o.info, o.planes, &o.spec, dst); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(dst, o.want) {
					t.Errorf("%+v %+v differs", o.info, o.spec)
				}
			}
		})
	}
	wg.Wait()
	if n := len(scratches.idle); n > maxIdle || scratches.bytes > maxIdleBytes {
		t.Errorf("%d idle scratches of %d bytes", n, scratches.bytes)
	}
}

// The pool of contexts stays within its limits for any number of shapes.
func TestScratchesAreBounded(t *testing.T) {
	d := synthetic(64, 48, "yuv420p", 5, false, 1)
	defer d.Close()
	info, planes := keep(t, &d.frame)
	for w := 1; w <= 3*maxIdle; w++ {
		sameAsConvert(t, &d.frame, info, planes, video.Spec{Width: w, Height: 40})
	}
	var held []*scratch
	for w := range 2 * maxIdle {
		s, err := scratches.acquireScratch(scratchKey{info: info, width: int32(w)})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	for _, s := range held {
		scratches.releaseScratch(s)
	}
	if n := len(scratches.idle); n > maxIdle || scratches.bytes > maxIdleBytes ||
		scratches.bytes < 0 {
		t.Errorf("%d idle scratches of %d bytes", n, scratches.bytes)
	}
}

// ffmpeg.F6 for stored planes.
func TestKeptPlanesDoNotAllocate(t *testing.T) {
	d := synthetic(64, 48, "yuv420p", 5, false, 1)
	defer d.Close()
	info, planes := keep(t, &d.frame)
	for _, spec := range specsFor(&d.frame) {
		dst := convert(t, d, spec)
		step := func() {
			if err := video.ConvertPlanes(info, planes, &spec, dst); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(50, step); n > 0 {
			t.Errorf("%+v: %v allocations", spec, n)
		}
	}
}

// Results that bypass the caches are the same at every alignment, and neighboring bytes do not
// change (ffmpeg.F3).
func TestEveryAlignment(t *testing.T) {
	for _, size := range [][2]int{{640, 80}, {250, 200}, {101, 500}, {8192, 8}, {8200, 8}} {
		d := synthetic(size[0], size[1], "yuv420p", 5, false, 5)
		for _, spec := range []video.Spec{
			{ChannelsFirst: true},
			{},
			{Pixel: video.RGBFloat32, ChannelsFirst: true},
			{Pixel: video.RGBFloat32},
		} {
			d.frame.swscale = alike
			want := convert(t, d, spec)
			d.frame.swscale = false
			buf := make([]byte, len(want)+256)
			copied := make([]byte, len(want)+256)
			for _, at := range []int{64, 65, 67, 68, 80, 95, 96, 100, 127} {
				for i := range buf {
					buf[i], copied[i] = 0xA5, 0xA5
				}
				n := len(want)
				if err := d.frame.Convert(&spec, buf[at:at+n]); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(buf[at:at+n], want) {
					t.Fatalf("%v %+v at %d: other bytes", size, spec, at)
				}
				video.CopyPixels(copied[at:at+n], want)
				if !bytes.Equal(copied, buf) {
					t.Fatalf("%v %+v at %d: copied otherwise", size, spec, at)
				}
				for i := range buf {
					if (i < at || i >= at+n) && buf[i] != 0xA5 {
						t.Fatalf("%v %+v at %d: byte %d is written", size, spec, at, i)
					}
				}
			}
		}
		d.Close()
	}
	// The same for depth.
	for _, size := range [][2]int{{320, 240}, {1100, 101}} {
		d := synthetic(size[0], size[1], "gray12le", 2, false, 5)
		for _, spec := range []video.Spec{
			{Pixel: video.Gray16},
			{Pixel: video.DepthMM, Depth: &depthCodes[0]},
		} {
			setRotation(d, 180)
			turned := convert(t, d, spec)
			setRotation(d, 0)
			for _, at := range []int{64, 66, 68, 100, 127} {
				buf := bytes.Repeat([]byte{0xA5}, len(turned)+256)
				if err := d.frame.Convert(&spec, buf[at:at+len(turned)]); err != nil {
					t.Fatal(err)
				}
				e := len(turned) / (size[0] * size[1])
				for i := range size[0] * size[1] {
					if !bytes.Equal(buf[at+i*e:at+i*e+e],
						turned[len(turned)-i*e-e:len(turned)-i*e]) {
						t.Fatalf("%v %+v at %d: code %d", size, spec, at, i)
					}
				}
				for i := range buf {
					if (i < at || i >= at+len(turned)) && buf[i] != 0xA5 {
						t.Fatalf("%v %+v at %d: byte %d is written", size, spec, at, i)
					}
				}
			}
		}
		d.Close()
	}
	// CopyPixels equals copy.
	for _, n := range []int{0, 1, 128<<10 - 1, 128 << 10, 300001} {
		src := make([]byte, n)
		for i := range src {
			src[i] = byte(i * 31)
		}
		dst := make([]byte, n+7)
		video.CopyPixels(dst[3:], src)
		if !bytes.Equal(dst[3:3+n], src) || dst[2] != 0 || dst[3+n] != 0 {
			t.Errorf("%d bytes", n)
		}
	}
}

func TestConvertPlanesRefuses(t *testing.T) {
	good := video.PlaneInfo{Width: 8, Height: 8, Format: 1, Matrix: 5}
	planes := make([]byte, good.Bytes())
	dst := make([]byte, 3*64, 4*64)
	if err := video.ConvertPlanes(good, planes, &video.Spec{}, dst); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []video.PlaneInfo{
		{},
		{Width: 8, Height: 8},
		{Width: 8, Height: 8, Format: 255},
		{Width: -8, Height: 8, Format: 1},
		{Width: 8, Height: 0, Format: 1},
		{Width: 1 << 30, Height: 1 << 30, Format: 1},
		{Width: 8, Height: 8, Format: 1, Rotation: 45},
	} {
		if err := video.ConvertPlanes(bad, planes, &video.Spec{}, dst); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Errorf("%+v: %v", bad, err)
		}
		_ = bad.Bytes()
		_ = bad.Shape()
	}
	if err := video.ConvertPlanes(video.PlaneInfo{Width: 64, Height: 8, Format: 1}, planes,
		&video.Spec{}, dst); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a larger frame than its planes: %v", err)
	}
	for _, n := range []int{0, 1, len(dst) - 1} {
		if err := video.ConvertPlanes(good, planes[:n], &video.Spec{}, dst); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Errorf("%d bytes of planes: %v", n, err)
		}
		if err := video.ConvertPlanes(good, planes, &video.Spec{}, dst[:n]); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("a destination of %d bytes: %v", n, err)
		}
	}
	if err := video.ConvertPlanes(good, planes, &video.Spec{Pixel: video.DepthMM},
		make([]byte, 256)); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("depth without a code: %v", err)
	}
	b := good.Append(nil)
	if len(b) != 16 {
		t.Fatalf("%d bytes", len(b))
	}
	for i, v := range map[int]byte{8: 0, 10: 2, 11: 1, 12: 1, 14: 1, 15: 9} {
		c := bytes.Clone(b)
		c[i] = v
		if _, err := video.ParsePlaneInfo(c); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("byte %d = %d: %v", i, v, err)
		}
	}
	if _, err := video.ParsePlaneInfo(b[:15]); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("cut: %v", err)
	}
}

// FuzzConvertPlanes: for any header, length and bytes the result is a typed error or a frame, and
// no byte outside is accessed.
func FuzzConvertPlanes(f *testing.F) {
	for _, name := range []uint8{1, 14, 28, 31} {
		info := video.PlaneInfo{Width: 33, Height: 17, Format: name, Matrix: 5, Rotation: 90}
		f.Add(
			info.Append(nil),
			bytes.Repeat([]byte{200, 3}, info.Bytes()/2),
			uint8(0),
			true,
			uint16(0),
			uint16(0),
		)
	}
	f.Fuzz(func(t *testing.T, head, body []byte, pixel uint8, chw bool, width, height uint16) {
		info, err := video.ParsePlaneInfo(head)
		if err != nil {
			var e *robocache.Error
			if !errors.As(err, &e) || e.Class == nil {
				t.Fatalf("untyped %v", err)
			}
			return
		}
		if int64(info.Width)*int64(info.Height) > 1<<16 || int(width)*int(height) > 1<<16 {
			return
		}
		if n := info.Bytes(); len(body) > 0 && len(body) != n && n < 1<<20 && body[0]&1 == 0 {
			body = append(body, make([]byte, n)...)[:n] // usually the right length
		}
		planes := fenced(t, len(body))
		copy(planes, body)
		spec := video.Spec{
			Pixel:         video.Pixel(pixel % 7),
			ChannelsFirst: chw,
			Width:         int(width),
			Height:        int(height),
			Depth:         &depthCodes[1],
		}
		shape := info.Shape()
		n, err := shape.Bytes(&spec)
		if err != nil {
			n = 16
		}
		dst := fenced(t, n)
		if err := video.ConvertPlanes(info, planes, &spec, dst); err != nil {
			var e *robocache.Error
			if !errors.As(err, &e) || e.Class == nil {
				t.Fatalf("untyped %v", err)
			}
		}
	})
}
