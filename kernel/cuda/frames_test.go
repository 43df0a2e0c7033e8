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

// frameShapes are sizes as decoded and of the result. The host's own code computes the expected
// result.
var frameShapes = [][4]int{
	{640, 480, 0, 0},
	{322, 242, 0, 0},
	{33, 8, 0, 0},
	{640, 480, 224, 224},
	{640, 480, 320, 240},
	{96, 84, 224, 224},
	{322, 242, 84, 84},
	{640, 480, 96, 128},
	{128, 96, 130, 96},
	{64, 64, 640, 480},
	{1280, 720, 224, 224},
}

// checkFrames checks that the kernel's frames equal those of the host to the bit: one and many,
// packed and planar, for each matrix and range.
func checkFrames(t *testing.T, d *Device, shapes [][4]int, seed uint64) {
	t.Helper()
	rng, ran := rand.New(rand.NewPCG(seed, 1)), 0
	for i, shape := range shapes {
		info := video.PlaneInfo{
			Width:     int32(shape[0]),
			Height:    int32(shape[1]),
			Format:    video.PlaneFormat("yuv420p"),
			Matrix:    []uint8{2, 1, 5, 9}[i%4],
			FullRange: i%3 == 1,
		}
		spec := video.Spec{
			Pixel:         video.RGB8,
			Width:         shape[2],
			Height:        shape[3],
			ChannelsFirst: i%2 == 0,
		}
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
		// Two different frames in turn: the luma plane, followed by the interleaved chroma.
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
					pairs = append(
						pairs,
						planes[p[1].Offset+y*p[1].Stride+x],
						planes[p[2].Offset+y*p[2].Stride+x],
					)
				}
				if y+1 < p[1].Rows {
					pairs = append(pairs, make([]byte, -len(pairs)&3)...)
				}
			}
			pairs = append(pairs, make([]byte, -len(pairs)&3)...)
			at := memory(append(slices.Clone(planes[:p[1].Offset]), pairs...))
			from[k] = FramePlanes{
				at,
				at + uintptr(p[1].Offset),
				p[0].Stride,
				(2*p[1].RowBytes + 3) &^ 3,
			}
			want[k] = make([]byte, 3*f.Width*f.Height)
			if err := video.ConvertPlanes(info, planes, &spec, want[k]); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{1, 3, framesOfLaunch + 1} {
			if n > 3 && i > 0 { // more than one launch can hold
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
						t.Fatalf(
							"%v, %+v, frame %d: byte %d is %d, not %d",
							shape,
							spec,
							frame,
							j,
							got[j],
							want[frame%2][j],
						)
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

// TestFramesOnGPU runs checkFrames with 20 seeds.
func TestFramesOnGPU(t *testing.T) {
	d := device(t)
	for seed := range uint64(20) {
		checkFrames(t, d, frameShapes, seed)
	}
}

// checkRows checks that rows of any size and place are copied, and nothing next to them.
func checkRows(t *testing.T, d *Device) {
	t.Helper()
	x, err := d.PrepareRows()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	plain := func(n int) Rows { return Rows{{Bytes: n, Rows: 1}} }
	for _, c := range []struct {
		copies, off int
		rows        Rows
	}{
		{1, 0, plain(1)},
		{3, 0, plain(16)},
		{130, 0, plain(4112)},
		{5, 3, plain(5000)},
		{2, 1, plain(100_000)},
		{4, 0, Rows{}},
		{
			3,
			0,
			Rows{
				{Bytes: 64, Rows: 6, From: 80, To: 64},
				{Bytes: 64, Rows: 3, From: 80, To: 64, FromAt: 7 * 80, ToAt: 6 * 64},
			},
		},
		{
			40,
			0,
			Rows{
				{Bytes: 321, Rows: 5, From: 512, To: 384},
				{Bytes: 322, Rows: 3, From: 512, To: 448, FromAt: 8 * 512, ToAt: 5 * 384},
			},
		},
		{
			2,
			6,
			Rows{
				{Bytes: 50, Rows: 40, From: 64, To: 64},
				{Bytes: 50, Rows: 20, From: 64, To: 64, FromAt: 41 * 64, ToAt: 40 * 64},
			},
		},
		{2, 0, Rows{1: {Bytes: 33, Rows: 7, From: 48, To: 34, FromAt: 5, ToAt: 3}}},
	} {
		size := 0
		for _, a := range c.rows {
			size = max(size, a.FromAt+a.Rows*a.From+a.Bytes, a.ToAt+a.Rows*a.To+a.Bytes)
		}
		size += 32 - size%16
		src := make([]byte, c.copies*size)
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
		froms, tos := make([]uintptr, c.copies), make([]uintptr, c.copies)
		for i, j := range rng.Perm(c.copies) {
			a, b := i*size+c.off, j*size
			froms[i], tos[i] = from+uintptr(a), to+uintptr(b)
			for _, r := range c.rows {
				for y := range r.Rows {
					copy(want[b+r.ToAt+y*r.To:][:r.Bytes], src[a+r.FromAt+y*r.From:])
				}
			}
		}
		if err := x.Run(tos, froms, &c.rows, 0); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(src))
		if err := d.CopyOut(got, to); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf(
				"%d copies of %+v, %d beyond: not what was to be copied",
				c.copies,
				c.rows,
				c.off,
			)
		}
		d.Free(from)
		d.Free(to)
	}
}

// TestRowsOnGPU runs checkRows.
func TestRowsOnGPU(t *testing.T) { checkRows(t, device(t)) }

// TestFrameTimes prints the time of frames on an idle device, for one and many per launch. This is
// time that a trainer's kernels lose.
func TestFrameTimes(t *testing.T) {
	if !*times {
		t.Skip("-times measures")
	}
	d := device(t)
	st := stream(t, d)
	for _, shape := range [][4]int{{640, 480, 0, 0}, {640, 480, 224, 224}, {1920, 1080, 224, 224}} {
		info := video.PlaneInfo{
			Width:  int32(shape[0]),
			Height: int32(shape[1]),
			Format: video.PlaneFormat("yuv420p"),
			Matrix: 1,
		}
		spec := video.Spec{
			Pixel:         video.RGB8,
			Width:         shape[2],
			Height:        shape[3],
			ChannelsFirst: true,
		}
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
