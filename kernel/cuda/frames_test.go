package cuda

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// frameShapes are sizes as decoded and of the result, which the host's own code makes.
var frameShapes = [][4]int{
	{640, 480, 0, 0}, {322, 242, 0, 0}, {33, 8, 0, 0}, {640, 480, 224, 224}, {640, 480, 320, 240}, {96, 84, 224, 224}, {322, 242, 84, 84}, {640, 480, 96, 128},
	{128, 96, 130, 96}, {64, 64, 640, 480}, {1280, 720, 224, 224},
}

// Frames come out of the kernel as the host makes them, to the bit: one and many, packed and as planes, each matrix and range.
func checkFrames(t *testing.T, d *Device, shapes [][4]int, seed uint64) {
	t.Helper()
	rng, ran := rand.New(rand.NewPCG(seed, 1)), 0
	for i, shape := range shapes {
		info := video.PlaneInfo{Width: int32(shape[0]), Height: int32(shape[1]), Format: video.PlaneFormat("yuv420p"), Matrix: []uint8{2, 1, 5, 9}[i%4], FullRange: i%3 == 1}
		spec := video.Spec{Pixel: video.RGB8, Width: shape[2], Height: shape[3], ChannelsFirst: i%2 == 0}
		f, ok := video.FormulaOf(info, &spec)
		if !ok {
			t.Logf("%v: the host has another's code", shape)
			continue
		}
		ran++
		form := FrameForm(f)
		x, err := d.PrepareFrames(&form)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := info.Planes()
		memory := func(b []byte) uintptr {
			a, err := d.Alloc(len(b))
			if err == nil {
				err = d.CopyIn(a, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Free(a) })
			return a
		}
		// Two frames that differ, in turn: planes, and the pairs of chroma behind the luma.
		var from [2]FramePlanes
		var want [2][]byte
		for k := range from {
			planes, pairs := make([]byte, info.Bytes()), []byte(nil)
			for k := range p {
				for y := range p[k].Rows {
					row := planes[p[k].Offset+y*p[k].Stride:][:p[k].RowBytes]
					kind := rng.IntN(4)
					for x := range row {
						row[x] = [4]byte{0, 255, byte(x), byte(rng.Uint32())}[kind]
					}
				}
			}
			for y := range p[1].Rows {
				for x := range p[1].RowBytes {
					pairs = append(pairs, planes[p[1].Offset+y*p[1].Stride+x], planes[p[2].Offset+y*p[2].Stride+x])
				}
			}
			pairs = append(pairs, make([]byte, -len(pairs)&3)...)
			at := memory(append(slices.Clone(planes[:p[1].Offset]), pairs...))
			from[k] = FramePlanes{at, at + uintptr(p[1].Offset), p[0].Stride, 2 * p[1].RowBytes}
			want[k] = make([]byte, 3*f.Width*f.Height)
			if err := video.ConvertPlanes(info, planes, &spec, want[k]); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{1, 3, framesOfLaunch + 1} {
			if n > 3 && i > 0 { // more than a launch has
				continue
			}
			got := bytes.Repeat([]byte{0x5a}, len(want[0]))
			froms, outs := make([]FramePlanes, n), make([]uintptr, n)
			for j := range outs {
				froms[j], outs[j] = from[j%2], memory(got)
			}
			if err := x.Run(froms, outs, spec.ChannelsFirst, 0); err != nil {
				t.Fatal(err)
			}
			for frame, out := range outs {
				if err := d.CopyOut(got, out); err != nil {
					t.Fatal(err)
				}
				for j := range got {
					if got[j] != want[frame%2][j] {
						t.Fatalf("%v, %+v, frame %d: byte %d is %d, not %d", shape, spec, frame, j, got[j], want[frame%2][j])
					}
				}
			}
		}
	}
	if ran == 0 {
		t.Skip("the host makes no frame by code of its own")
	}
	t.Logf("%d shapes", ran)
}

func TestFramesOnGPU(t *testing.T) {
	d := device(t)
	for seed := range uint64(20) {
		checkFrames(t, d, frameShapes, seed)
	}
}

// Pieces of any size and place are copied, and nothing beside them.
func checkPieces(t *testing.T, d *Device) {
	t.Helper()
	x, err := d.PreparePieces()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range [][3]int{{1, 1, 0}, {3, 16, 0}, {130, 4112, 0}, {5, 5000, 3}, {2, 100_000, 1}, {4, 0, 0}} {
		n, size, off := c[0], c[1], c[2]
		src := make([]byte, n*(size+32))
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		want := bytes.Repeat([]byte{0x5a}, len(src))
		from, err := d.Alloc(len(src))
		if err == nil {
			err = d.CopyIn(from, src)
		}
		to, err2 := d.Alloc(len(src))
		if err2 == nil {
			err2 = d.CopyIn(to, want)
		}
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		froms, tos := make([]uintptr, n), make([]uintptr, n)
		for i, j := range rng.Perm(n) {
			a, b := i*(size+32)+off, j*(size+32)
			froms[i], tos[i] = from+uintptr(a), to+uintptr(b)
			copy(want[b:][:size], src[a:])
		}
		if err := x.Copy(tos, froms, size, 0); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(src))
		if err := d.CopyOut(got, to); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d pieces of %d bytes, %d beyond: not what was to be copied", n, size, off)
		}
		d.Free(from)
		d.Free(to)
	}
}

func TestPiecesOnGPU(t *testing.T) { checkPieces(t, device(t)) }

// What frames take on a device alone, one a launch and many: the work that is taken from a trainer's kernels.
func TestFrameTimes(t *testing.T) {
	if !*times {
		t.Skip("-times measures")
	}
	d := device(t)
	st := stream(t, d)
	for _, shape := range [][4]int{{640, 480, 0, 0}, {640, 480, 224, 224}, {1920, 1080, 224, 224}} {
		info := video.PlaneInfo{Width: int32(shape[0]), Height: int32(shape[1]), Format: video.PlaneFormat("yuv420p"), Matrix: 1}
		spec := video.Spec{Pixel: video.RGB8, Width: shape[2], Height: shape[3], ChannelsFirst: true}
		f, ok := video.FormulaOf(info, &spec)
		if !ok {
			t.Fatal(shape)
		}
		form := FrameForm(f)
		x, err := d.PrepareFrames(&form)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := info.Planes()
		const n = 2 * framesOfLaunch
		from, to := make([]FramePlanes, n), make([]uintptr, n)
		for i := range from {
			at, err := d.Alloc(info.Bytes())
			if err == nil {
				to[i], err = d.Alloc(3 * f.Width * f.Height)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Free(at); d.Free(to[i]) })
			from[i] = FramePlanes{at, at + uintptr(p[1].Offset), p[0].Stride, 2 * p[1].Stride}
		}
		for _, each := range []int{1, framesOfLaunch} {
			g, err := d.Capture(st, func() error {
				for i := 0; i < n; i += each {
					if err := x.Run(from[i:i+each], to[i:i+each], true, st); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			best := math.Inf(1)
			for range 20 {
				us, err := d.Elapsed(st, func() error { return g.Launch(st) })
				if err != nil {
					t.Fatal(err)
				}
				best = min(best, us/n)
			}
			g.Free()
			t.Logf("%v, %d a launch: %.2f µs a frame", shape, each, best)
		}
	}
}
