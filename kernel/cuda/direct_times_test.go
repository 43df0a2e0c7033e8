package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestDirectTimes prints the times of the direct kernels and of the others, in a graph of 50
// launches. directLimit and directShape are based on these numbers.
func TestDirectTimes(t *testing.T) {
	if !*times {
		t.Skip("-times measures")
	}
	d := device(t)
	st := stream(t, d)
	bf, f32 := robocache.BFloat16, robocache.Float32
	fused := [][2]int{{30, 512}, {100, 64}, {200, 12}}
	for _, c := range []struct {
		name     string
		b, rows  int
		streams  [][2]int
		from, to robocache.DType
		norm     bool
	}{
		{"256x100-50x32 bf16", 256, 50, [][2]int{{100, 32}}, bf, bf, false},
		{"256x100-50x32 f32", 256, 50, [][2]int{{100, 32}}, f32, f32, false},
		{"32x500-256x256 bf16", 32, 256, [][2]int{{500, 256}}, bf, bf, false},
		{"32x500-256x256 f32", 32, 256, [][2]int{{500, 256}}, f32, f32, false},
		{"256x500-250x7 f32", 256, 250, [][2]int{{500, 7}}, f32, f32, false},
		{"1024x100-50x32 bf16", 1024, 50, [][2]int{{100, 32}}, bf, bf, false},
		{"4096x100-50x32 bf16", 4096, 50, [][2]int{{100, 32}}, bf, bf, false},
		{"64x500-256x256 bf16", 64, 256, [][2]int{{500, 256}}, bf, bf, false},
		{"64x4096-1024x128 bf16", 64, 1024, [][2]int{{4096, 128}}, bf, bf, false},
		{"64x4096-1024x128 f32", 64, 1024, [][2]int{{4096, 128}}, f32, f32, false},
		{"fuse3 B4 bf16", 4, 50, fused, bf, bf, false},
		{"fuse3 B4 bf16 norm", 4, 50, fused, bf, bf, true},
		{"fuse3 B4 f32-bf16 norm", 4, 50, fused, f32, bf, true},
		{"fuse3 B16 bf16", 16, 50, fused, bf, bf, false},
		{"fuse3 B64 bf16", 64, 50, fused, bf, bf, false},
		{"fuse3 B64 bf16 norm", 64, 50, fused, bf, bf, true},
		{"fuse3 B256 bf16", 256, 50, fused, bf, bf, false},
		{"fuse3 B256 bf16 norm", 256, 50, fused, bf, bf, true},
	} {
		for _, jitter := range []bool{false, true} {
			op := &kernel.FuseOp{
				Targets: kernel.Tensor{DType: robocache.Int64, Shape: []int{c.b, c.rows}},
			}
			cols := 0
			for _, s := range c.streams {
				x := kernel.Series{
					Values: kernel.Tensor{DType: c.from, Shape: []int{c.b, s[0], s[1]}},
					Times:  kernel.Tensor{DType: robocache.Int64, Shape: []int{c.b, s[0]}},
				}
				if c.norm {
					x.Epilogue.Norm = &kernel.Norm{
						A: make([]float32, s[1]),
						B: slices.Repeat([]float32{1.5}, s[1]),
					}
				}
				op.Series = append(op.Series, x)
				cols += s[1]
			}
			op.Out = kernel.Tensor{DType: c.to, Shape: []int{c.b, c.rows, cols}}
			addrs := directInputs(t, d, op, jitter)
			way := "even"
			if jitter {
				way = "jitter"
			}
			line := fmt.Sprintf("%-24s %-6s", c.name, way)
			for _, limit := range []int64{0, math.MaxInt32} {
				if limit == 0 && imageOverride != nil { // the other sources take long to compile
					continue
				}
				was := directLimit
				directLimit = limit
				l, err := d.Prepare(op)
				directLimit = was
				if err != nil {
					t.Fatal(err)
				}
				if limit == 0 {
					line += fmt.Sprintf(" present %6.2f", graphTime(t, d, st, l, addrs, 0, true))
					continue
				}
				k := l.calls[0]
				line += fmt.Sprintf(
					" | %d x %d, chosen %6.2f",
					k.grid,
					k.block,
					graphTime(t, d, st, l, addrs, 0, true),
				)
				for _, early := range []bool{false, true} {
					line += fmt.Sprintf(" | early %v", early)
					for _, block := range []uint32{64, 128, 256, 512} {
						line += fmt.Sprintf(" %6.2f", graphTime(t, d, st, l, addrs, block, early))
					}
				}
			}
			fmt.Println(line)
			for _, a := range addrs {
				d.Free(a)
			}
		}
	}
}

// directInputs fills the operation's tensors on the device.
func directInputs(t *testing.T, d *Device, op *kernel.FuseOp, jitter bool) []uintptr {
	var addrs []uintptr
	var err error
	r := rand.New(rand.NewPCG(1, 1))
	for _, x := range op.Tensors() {
		b := make([]byte, x.Len()*x.DType.Size())
		switch {
		case x.DType == robocache.Int64: // five seconds
			n := x.Shape[1]
			period := int64(5_000_000_000) / int64(n)
			for i := range x.Len() {
				at := int64(i%n)*period + 1_760_000_000_000_000_000
				if x == &op.Targets {
					at += 123_457
				} else if jitter {
					at += r.Int64N(period * 6 / 10)
				}
				binary.LittleEndian.PutUint64(b[8*i:], uint64(at))
			}
		default:
			size := x.DType.Size()
			for i := range x.Len() {
				v := math.Float32bits(float32(r.NormFloat64()))
				if size == 4 {
					binary.LittleEndian.PutUint32(b[4*i:], v)
				} else {
					binary.LittleEndian.PutUint16(b[2*i:], uint16(v>>16))
				}
			}
		}
		a, e := d.Alloc(len(b))
		err = errors.Join(err, e, d.CopyIn(a, b))
		addrs = append(addrs, a)
	}
	if err != nil {
		t.Fatal(err)
	}
	return addrs
}

// graphTime returns the median time in µs of one of 50 launches in a graph. block 0 keeps the
// prepared block size.
func graphTime(
	t *testing.T,
	d *Device,
	s uintptr,
	l *Launch,
	addrs []uintptr,
	block uint32,
	early bool,
) float64 {
	was := l.adjust
	defer func() { l.adjust = was }()
	l.adjust = append(was[:len(was):len(was)], func([]uintptr) {
		for i := range l.calls {
			if k := &l.calls[i]; k.grid != 0 && block != 0 &&
				strings.HasPrefix(k.kernel, "direct_") {
				p := (*directParams)(unsafe.Pointer(unsafe.SliceData(k.params)))
				k.block, k.grid, k.early = block, uint32(ceilDiv(int64(p.total), int64(block))),
					early
			}
		}
	})
	g, err := d.Capture(s, func() error {
		for range 50 {
			if err := l.Run(addrs, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free()
	var times []float64
	for i := range 16 {
		us, err := d.Elapsed(s, func() error { return g.Launch(s) })
		if err != nil {
			t.Fatal(err)
		}
		if i >= 3 {
			times = append(times, us/50)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}
