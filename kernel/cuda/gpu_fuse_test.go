package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestFuseManyElements uses more than 2^31 elements, in and out. Rows at the start, around 2^31 and
// at the end must equal the reference.
func TestFuseManyElements(t *testing.T) {
	d := device(t)
	const b, s, cols = 1<<16 + 1, 64, 513 // 2,150 million elements
	const size = b * s * cols * 2
	if free, _, err := d.Memory(); err != nil || free < 3*size {
		t.Skip("needs 13 GiB of the device: ", free, err)
	}
	op := &kernel.FuseOp{
		Series: []kernel.Series{
			{
				Name:   "x",
				Values: kernel.Tensor{DType: robocache.BFloat16, Shape: []int{b, s, cols}},
				Times:  kernel.Tensor{DType: robocache.Int64, Shape: []int{s}},
			},
		},
		Targets: kernel.Tensor{
			DType: robocache.Int64,
			Shape: []int{s},
		},
		Out: kernel.Tensor{DType: robocache.BFloat16, Shape: []int{b, s, cols}},
	}
	l := prepareFuse(t, d, op)
	// The pattern differs between neighboring entries: slightly more than 64 MiB, doubled on the
	// device.
	pattern := make([]byte, 64<<20+cols*2)
	x := uint32(7)
	for i := 0; i+1 < len(pattern); i += 2 {
		x = x*1664525 + 1013904223
		binary.LittleEndian.PutUint16(
			pattern[i:],
			uint16(math.Float32bits(float32(int32(x))/(1<<28))>>16),
		)
	}
	values, out := words(t, d, size/4+1), words(t, d, size/4+1)
	timestamps, targets := make([]byte, s*8), make([]byte, s*8)
	for i := range s {
		binary.LittleEndian.PutUint64(timestamps[i*8:], uint64(i*1000))
		binary.LittleEndian.PutUint64(targets[i*8:], uint64(i*990+300))
	}
	at, gt := words(t, d, s*2), words(t, d, s*2)
	st := stream(t, d)
	err := errors.Join(d.CopyIn(values, pattern), d.CopyIn(at, timestamps), d.CopyIn(gt, targets))
	for have := len(pattern); have < size && err == nil; have *= 2 {
		err = d.copyThere(values+uintptr(have), values, min(have, size-have), st)
	}
	if err := errors.Join(err, l.Run([]uintptr{values, at, gt, out}, st), d.Wait(st)); err != nil {
		t.Fatal(err)
	}
	const entry = s * cols * 2
	for _, i := range []int{
		0,
		1,
		1<<31/(s*cols) - 1,
		1 << 31 / (s * cols),
		1<<31/(s*cols) + 1,
		b - 1,
	} {
		one := *op
		one.Series = []kernel.Series{
			{
				Values: kernel.Tensor{
					DType: robocache.BFloat16,
					Shape: []int{1, s, cols},
					Data:  make([]byte, entry),
				},
				Times: kernel.Tensor{DType: robocache.Int64, Shape: []int{s}, Data: timestamps},
			},
		}
		one.Targets.Data = targets
		one.Out = kernel.Tensor{
			DType: robocache.BFloat16,
			Shape: []int{1, s, cols},
			Data:  make([]byte, entry),
		}
		got := make([]byte, entry)
		err := errors.Join(
			d.CopyOut(one.Series[0].Values.Data, values+uintptr(i*entry)),
			d.CopyOut(got, out+uintptr(i*entry)),
			(kernel.Reference{}).Run(&one),
		)
		if err != nil || !bytes.Equal(got, one.Out.Data) {
			t.Errorf("entry %d of %d differs: %v", i, b, err)
		}
	}
}

// TestFuseExtents uses extents of 0, and one beyond the limit of grid.y.
func TestFuseExtents(t *testing.T) {
	d := device(t)
	h := &Hosted{d: d, stream: stream(t, d)}
	for _, c := range [][4]int{
		{0, 100, 50, 32},
		{4, 0, 50, 32},
		{4, 100, 0, 32},
		{4, 100, 50, 0},
		{1, 1, 1, 1},
		{2, 300, 70_000, 3},
		{70_000, 3, 2, 1},
	} {
		b, s, n, cols := c[0], c[1], c[2], c[3]
		make := func() *kernel.FuseOp {
			tensor := func(dt robocache.DType, shape ...int) kernel.Tensor {
				t := kernel.Tensor{DType: dt, Shape: shape}
				t.Data = bytes.Repeat(
					[]byte{1, 2, 3, 0x40},
					t.Len()*dt.Size()/4+1,
				)[:t.Len()*dt.Size()]
				return t
			}
			op := &kernel.FuseOp{
				Series: []kernel.Series{
					{
						Name:   "x",
						Values: tensor(robocache.Float32, b, s, cols),
						Times:  tensor(robocache.Int64, b, s),
					},
				},
				Targets: tensor(robocache.Int64, n),
				Out:     tensor(robocache.Float32, b, n, cols),
			}
			valid := tensor(robocache.Uint8, b, n, 1)
			op.Valid = &valid
			for i := range b * s {
				binary.LittleEndian.PutUint64(
					op.Series[0].Times.Data[i*8:],
					uint64(i%max(s, 1)*100),
				)
			}
			for i := range n {
				binary.LittleEndian.PutUint64(op.Targets.Data[i*8:], uint64(i*7%(s*100+50)))
			}
			for i := range b * s * cols {
				binary.LittleEndian.PutUint32(
					op.Series[0].Values.Data[i*4:],
					math.Float32bits(float32(i%1009)),
				)
			}
			return op
		}
		got, want := make(), make()
		if err := errors.Join(h.Run(got), (kernel.Reference{}).Run(want)); err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if !bytes.Equal(got.Out.Data, want.Out.Data) ||
			!bytes.Equal(got.Valid.Data, want.Valid.Data) {
			t.Errorf("%v: differs from the reference", c)
		}
	}
}

// TestFuseReplay covers cuda.G4: a captured fuse uses the contents that its tensors have at the
// replay.
func TestFuseReplay(t *testing.T) {
	d := device(t)
	const b = 64
	values, times, out := make([]byte, b*6400), make([]byte, b*800), make([]byte, b*3200)
	l := prepareFuse(t, d, trajectories(b))
	s := stream(t, d)
	addrs := []uintptr{
		words(t, d, b*1600),
		words(t, d, b*200),
		words(t, d, 100),
		words(t, d, b*800),
	}
	fillTrajectories(values, times, b)
	if err := errors.Join(d.CopyIn(addrs[0], values), d.CopyIn(addrs[1], times),
		d.CopyIn(addrs[2], targets50())); err != nil {
		t.Fatal(err)
	}
	g, err := d.Capture(s, func() error { return l.Run(addrs, s) })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free()
	for round := range 3 {
		for i := range b * 100 {
			binary.LittleEndian.PutUint64(
				times[i*8:],
				binary.LittleEndian.Uint64(times[i*8:])+uint64(round*1_234_567),
			)
		}
		values[round*2+1] ^= 0x80
		err := errors.Join(
			d.CopyIn(addrs[0], values),
			d.CopyIn(addrs[1], times),
			g.Launch(s),
			d.Wait(s),
			d.CopyOut(out, addrs[3]),
		)
		if err == nil {
			err = compareTrajectories(values, times, out, b)
		}
		if err != nil {
			t.Fatalf("replay %d: %v", round, err)
		}
	}
}
