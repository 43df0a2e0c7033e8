package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// wayCase is a FuseOp for one of the fast kernels.
type wayCase struct {
	batch, rows int
	streams     [][2]int // S, D
	from, to    robocache.DType
	seconds     bool // float64 times
	lengths     bool
	shared      bool // targets and times [T], [S]
	norm        int  // 0 none, 1 mean/std, 2 min/max and clip
	counts      bool
	edge        kernel.Edge
	gap         int64
	mode        kernel.Mode
	kernel      string // expected kernel
}

// op returns an operation of the case with random values and times.
func (c wayCase) op(seed uint64) *kernel.FuseOp {
	r := rand.New(rand.NewPCG(seed, 7))
	op := &kernel.FuseOp{}
	times := func(n int, at, step float64, shape ...int) kernel.Tensor {
		t := kernel.Tensor{DType: robocache.Int64, Shape: shape}
		if c.seconds {
			t.DType = robocache.Float64
		}
		for range n {
			now := at
			for range shape[len(shape)-1] {
				v := uint64(int64(now * 1e9))
				if c.seconds {
					v = math.Float64bits(now)
				}
				t.Data = binary.LittleEndian.AppendUint64(t.Data, v)
				now += step * float64(r.IntN(3))
			}
		}
		return t
	}
	entries := c.batch
	lead := []int{c.batch}
	if c.shared {
		entries, lead = 1, nil
	}
	cols := 0
	for _, s := range c.streams {
		v := kernel.Tensor{DType: c.from, Shape: []int{c.batch, s[0], s[1]}}
		v.Data = make([]byte, v.Len()*c.from.Size())
		for i := range v.Len() {
			x := float32(r.NormFloat64())
			switch r.IntN(12) {
			case 0:
				x = float32(math.Copysign(0, float64(r.IntN(2)*2-1)))
			case 1:
				x = float32(math.Inf(1 - 2*r.IntN(2)))
			case 2:
				x *= 1e30
			}
			switch c.from {
			case robocache.Float32:
				binary.LittleEndian.PutUint32(v.Data[4*i:], math.Float32bits(x))
			case robocache.BFloat16:
				binary.LittleEndian.PutUint16(v.Data[2*i:], kernel.Float32toB16(x))
			case robocache.Float16:
				binary.LittleEndian.PutUint16(v.Data[2*i:], kernel.Float32to16(x))
			default:
				v.Data[i] = byte(r.IntN(256))
			}
		}
		series := kernel.Series{
			Values: v,
			Times:  times(entries, 1000, 0.01, append(lead[:len(lead):len(lead)], s[0])...),
			Rule:   kernel.Rule{Mode: c.mode, Edge: c.edge, MaxGap: c.gap},
		}
		if c.lengths {
			t := kernel.Tensor{DType: robocache.Int64, Shape: []int{c.batch}}
			for range c.batch {
				t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(r.IntN(s[0]+1)))
			}
			series.Lengths = &t
		}
		if c.norm > 0 {
			mean, std := make([]float64, s[1]), make([]float64, s[1])
			for i := range mean {
				mean[i], std[i] = r.NormFloat64(), float64(r.IntN(4))*r.Float64()
			}
			if c.norm == 1 {
				series.Epilogue.Norm = kernel.NewMeanStd(mean, std)
			} else {
				series.Epilogue.Norm, series.Epilogue.Clip = kernel.NewMinMax(
					mean,
					std,
				), &[2]float32{
					-2,
					2,
				}
			}
		}
		op.Series = append(op.Series, series)
		cols += s[1]
	}
	op.Targets = times(entries, 999.95, 0.01, append(lead[:len(lead):len(lead)], c.rows)...)
	op.Out = kernel.Tensor{DType: c.to, Shape: []int{c.batch, c.rows, cols}}
	op.Out.Data = bytes.Repeat([]byte{0xa5}, op.Out.Len()*c.to.Size())
	op.Valid = &kernel.Tensor{DType: robocache.Uint8, Shape: []int{c.batch, c.rows, len(c.streams)}}
	op.Valid.Data = make([]byte, op.Valid.Len())
	if c.counts {
		op.Counts = &kernel.Tensor{DType: robocache.Int64, Shape: []int{2}, Data: make([]byte, 16)}
	}
	return op
}

const (
	f32 = robocache.Float32
	b16 = robocache.BFloat16
	f16 = robocache.Float16
	u8  = robocache.Uint8
)

// wayCases are operations that the plans compute in different ways.
var wayCases = []wayCase{
	{
		batch:   20,
		rows:    50,
		streams: [][2]int{{30, 24}, {41, 16}, {21, 12}},
		from:    b16,
		to:      b16,
		kernel:  "fuse_4_staged",
	},
	{
		batch:   17,
		rows:    40,
		streams: [][2]int{{30, 8}, {20, 4}},
		from:    f32,
		to:      f32,
		seconds: true,
		lengths: true,
		edge:    kernel.Mask,
		kernel:  "fuse_4_staged",
	},
	{
		batch:   19,
		rows:    33,
		streams: [][2]int{{7, 4}, {0, 4}, {1, 8}},
		from:    f16,
		to:      f16,
		shared:  true,
		kernel:  "fuse_4_staged",
	},
	{
		batch:   18,
		rows:    50,
		streams: [][2]int{{31, 8}, {20, 12}},
		from:    b16,
		to:      b16,
		norm:    1,
		kernel:  "fuse_4_mapped",
	},
	{
		batch:   18,
		rows:    50,
		streams: [][2]int{{31, 8}, {20, 12}},
		from:    f32,
		to:      f16,
		norm:    2,
		counts:  true,
		gap:     15e6,
		edge:    kernel.Mask,
		kernel:  "fuse_4_mapped",
	},
	{batch: 9, rows: 25, streams: [][2]int{{50, 7}}, from: f32, to: f32, kernel: "fuse_small_rows"},
	{
		batch:   5,
		rows:    70,
		streams: [][2]int{{33, 7}, {50, 3}, {12, 1}},
		from:    f16,
		to:      f16,
		lengths: true,
		gap:     15e6,
		edge:    kernel.Mask,
		kernel:  "fuse_small_rows",
	},
	{
		batch:   5,
		rows:    21,
		streams: [][2]int{{33, 13}},
		from:    b16,
		to:      b16,
		seconds: true,
		edge:    kernel.Extrapolate,
		kernel:  "fuse_small_rows",
	},
	{
		batch:   6,
		rows:    29,
		streams: [][2]int{{33, 5}, {20, 2}},
		from:    u8,
		to:      f32,
		norm:    1,
		mode:    kernel.Nearest,
		kernel:  "fuse_small_rows_mapped",
	},
	{
		batch:   6,
		rows:    29,
		streams: [][2]int{{33, 5}, {20, 2}},
		from:    f32,
		to:      b16,
		norm:    2,
		counts:  true,
		kernel:  "fuse_small_rows_mapped",
	},
	{batch: 3, rows: 300, streams: [][2]int{{1500, 8}}, from: b16, to: b16, kernel: "fuse_8"},
	{batch: 1, rows: 64, streams: [][2]int{{64, 600}}, from: f32, to: f32, kernel: "fuse_4"},
	{batch: 1, rows: 10, streams: [][2]int{{5000, 3}}, from: f32, to: f32, kernel: "fuse_1"},
	{
		batch:   3,
		rows:    31,
		streams: [][2]int{{200, 40}},
		from:    b16,
		to:      f32,
		norm:    1,
		kernel:  "fuse_4_mapped",
	},
	{
		batch:   3,
		rows:    31,
		streams: [][2]int{{900, 21}},
		from:    u8,
		to:      f16,
		norm:    2,
		kernel:  "fuse_1_mapped",
	},
}

// ways checks that each fast kernel gives the bits of the reference.
func ways(t *testing.T, h *Hosted) {
	limitDirect(t, 0)
	for i, c := range wayCases {
		name := fmt.Sprintf("%s_%d", c.kernel, i)
		t.Run(name, func(t *testing.T) {
			want, got := c.op(uint64(i)), c.op(uint64(i))
			if err := (kernel.Reference{}).Run(want); err != nil {
				t.Fatal(err)
			}
			l, err := h.d.Prepare(got)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, k := range l.calls {
				names = append(names, k.kernel)
			}
			if names[0] != c.kernel && h.d.gpu == nil {
				t.Error("taken by", strings.Join(names, ", "))
			}
			if err := h.Run(got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want.Valid.Data, got.Valid.Data) {
				t.Error("valid differs")
			}
			if c.counts && !bytes.Equal(want.Counts.Data, got.Counts.Data) {
				t.Error("counts differ:", want.Counts.Data, got.Counts.Data)
			}
			size, wrong := c.to.Size(), 0
			for o := 0; o < len(want.Out.Data); o += size {
				a, b := want.Out.Data[o:o+size], got.Out.Data[o:o+size]
				if bytes.Equal(a, b) || isNaN(c.to, a) && isNaN(c.to, b) {
					continue
				}
				if wrong++; wrong < 5 {
					t.Errorf("element %d: %x, not %x", o/size, b, a)
				}
			}
		})
	}
}

// isNaN reports whether a 16-bit or 32-bit floating-point element is a NaN.
func isNaN(d robocache.DType, b []byte) bool {
	switch d {
	case f32:
		f := math.Float32frombits(binary.LittleEndian.Uint32(b))
		return f != f
	case f16:
		return binary.LittleEndian.Uint16(b)&0x7fff > 0x7c00
	}
	return binary.LittleEndian.Uint16(b)&0x7fff > 0x7f80
}

// TestWaysOnSimulator runs the cases with two orders of threads, one of them with checked memory.
func TestWaysOnSimulator(t *testing.T) {
	for _, o := range []sim.Options{{Seed: 1}, {Seed: 3, Checked: true}} {
		ways(t, &Hosted{d: simulator(t, o, "fuse", "any")})
	}
}

// TestWaysOnGPU runs the cases on a GPU.
func TestWaysOnGPU(t *testing.T) {
	d := device(t)
	ways(t, &Hosted{d: d, stream: stream(t, d)})
}
