package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// limitDirect sets directLimit for a test.
func limitDirect(t testing.TB, n int64) {
	was := directLimit
	directLimit = n
	t.Cleanup(func() { directLimit = was })
}

// TestDirectLayout compares the structs of src/direct.cuh with their mirrors.
func TestDirectLayout(t *testing.T) {
	var s directStream
	var p directParams
	for what, is := range map[string][2]uintptr{
		"DirectStream": {
			unsafe.Sizeof(s),
			120,
		}, "DirectStream.n": {
			unsafe.Offsetof(s.n),
			80,
		}, "DirectStream.type": {
			unsafe.Offsetof(s.dtype),
			104,
		}, "DirectStream.norm": {unsafe.Offsetof(s.norm), 108},
		"Direct": {
			unsafe.Sizeof(p),
			616,
		}, "Direct.total": {
			unsafe.Offsetof(p.total),
			40,
		}, "Direct.targets_entry": {
			unsafe.Offsetof(p.targetsEntry),
			72,
		}, "Direct.first": {unsafe.Offsetof(p.first), 128}, "Direct.s": {unsafe.Offsetof(p.s), 136},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d, not %d", what, is[0], is[1])
		}
	}
}

// TestDivisor compares the quotients of divisors with those of integer division.
func TestDivisor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300_000 {
		d, n := uint32(i+1), r.Uint32()>>1
		if i > 100_000 {
			d = r.Uint32()>>(1+r.Uint32N(31)) | 1
		}
		v := newDivisor(d)
		for _, n := range []uint32{
			n,
			n / d * d,
			n/d*d - 1,
			math.MaxInt32,
			math.MaxInt32 / d * d,
			math.MaxInt32/d*d - 1,
			0,
		} {
			if n > math.MaxInt32 {
				continue
			}
			if got := uint32(uint64(n) * uint64(v.m) >> v.shift); got != n/d {
				t.Fatalf("%d / %d: %d", n, d, got)
			}
		}
	}
}

// TestWeightInFloat32 checks the assumption of weight in src/direct.cuh: for integers up to 2^24,
// division in float32 equals the rounded division in float64.
func TestWeightInFloat32(t *testing.T) {
	check := func(a, b int64) {
		if float32(a)/float32(b) != float32(float64(a)/float64(b)) {
			t.Fatalf("%d/%d", a, b)
		}
	}
	for b := int64(1); b <= 1500; b++ {
		for a := range b {
			check(a, b)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 5_000_000 {
		b := r.Int64N(1<<24) + 1
		check(r.Int64N(b), b)
		// Quotients near the middle of two float32: a/b slightly off (2m+1)/2^25.
		m := r.Int64N(1 << 24)
		near := (2*m + 1) * b >> 25
		for a := max(0, near-1); a <= min(b, near+1); a++ {
			check(a, b)
		}
	}
}

// directCase returns an operation for the direct kernels. The same seed gives the same operation.
func directCase(seed uint64) *kernel.FuseOp {
	r := rand.New(rand.NewPCG(seed, 0xd1))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	types := []robocache.DType{robocache.Float32, robocache.Float16, robocache.BFloat16}
	from := types[r.IntN(3)]
	to, mapped := from, r.IntN(3) == 0
	if mapped {
		to = types[r.IntN(3)]
	}
	b, rows, streams := 1+r.IntN(5), 1+r.IntN(40), pick(1, 1, 2, 3, 4)
	tensor := func(dt robocache.DType, shape ...int) kernel.Tensor {
		t := kernel.Tensor{DType: dt, Shape: shape}
		t.Data = make([]byte, t.Len()*dt.Size())
		return t
	}
	random := func(t *kernel.Tensor) {
		for i := range t.Data {
			t.Data[i] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 { // any bits: NaN, Inf, subnormal
			return
		}
		for i := range t.Len() {
			switch x := float32(r.NormFloat64()); t.DType {
			case robocache.Float32:
				binary.LittleEndian.PutUint32(t.Data[i*4:], math.Float32bits(x))
			case robocache.BFloat16:
				binary.LittleEndian.PutUint16(t.Data[i*2:], uint16(math.Float32bits(x)>>16))
			default:
				binary.LittleEndian.PutUint16(
					t.Data[i*2:],
					uint16(r.Uint32N(0x7800))|uint16(r.Uint32N(2)<<15),
				)
			}
		}
	}
	times := func(v []int64) []byte {
		out := make([]byte, 8*len(v))
		for i, x := range v {
			binary.LittleEndian.PutUint64(out[8*i:], uint64(max(1-1<<62, min(x, 1<<62-1))))
		}
		return out
	}
	base := []int64{0, 1_760_000_000_000_000_000, -1 << 61, 1<<62 - 1<<40}[r.IntN(4)]
	period := []int64{1, 3, 10_000_000, 33_333_333, 1 << 24, 1<<24 + 1, 1 << 33}[r.IntN(7)]
	timestamps := func(n int) []int64 {
		out := make([]int64, n)
		t, way := base, r.IntN(5)
		for i := range out {
			switch way {
			case 0: // even spacing
			case 1: // jitter
				t += r.Int64N(period)
			case 2: // runs of equal timestamps
				if r.IntN(3) != 0 {
					t -= period
				}
			case 3: // rarely a gap that takes nearly all of the time
				if r.IntN(n) == 0 {
					t += period * int64(n) * 5
				}
			case 4: // bunched at the start
				t += period * int64(i) * int64(i) / 4
			}
			t += period
			out[i] = min(t, 1<<62-1)
		}
		return out
	}
	op := &kernel.FuseOp{}
	cols, longest, e := 0, 1, pick(1, 1, 2, 4, 8)
	for s := range streams {
		n := pick(1, 2, 3, 5, 17, 60, 200)
		d := e * (1 + r.IntN(4))
		x := kernel.Series{
			Name: fmt.Sprint("s", s),
			Rule: kernel.Rule{
				Mode: []kernel.Mode{
					kernel.Linear,
					kernel.Linear,
					kernel.Nearest,
					kernel.Previous,
					kernel.Next,
				}[r.IntN(5)],
				Edge: kernel.Edge(r.IntN(2)),
			},
		}
		if r.IntN(3) == 0 {
			x.Rule.MaxGap = 1 + r.Int64N(2*period)
		}
		switch r.IntN(4) {
		case 0: // ragged
			offsets, all := []int64{0}, []int64{}
			for range b {
				k := r.IntN(n + 1)
				all = append(all, timestamps(k)...)
				offsets = append(offsets, offsets[len(offsets)-1]+int64(k))
			}
			x.Values, x.Times = tensor(from, len(all), d), tensor(robocache.Int64, len(all))
			x.Times.Data = times(all)
			o := kernel.Tensor{DType: robocache.Int64, Shape: []int{b + 1}, Data: times(offsets)}
			x.Offsets = &o
		case 1: // shared timestamps
			x.Values = tensor(from, b, n, d)
			x.Times = kernel.Tensor{
				DType: robocache.Int64,
				Shape: []int{n},
				Data:  times(timestamps(n)),
			}
		default:
			x.Values, x.Times = tensor(from, b, n, d), tensor(robocache.Int64, b, n)
			var all []int64
			for range b {
				all = append(all, timestamps(n)...)
			}
			x.Times.Data = times(all)
			if r.IntN(2) == 0 {
				var lengths []int64
				for range b {
					lengths = append(lengths, r.Int64N(int64(n+1)))
				}
				x.Lengths = &kernel.Tensor{
					DType: robocache.Int64,
					Shape: []int{b},
					Data:  times(lengths),
				}
			}
		}
		random(&x.Values)
		if mapped && r.IntN(3) != 0 {
			norm := &kernel.Norm{Kind: kernel.NormKind(r.IntN(2))}
			for range d {
				norm.A = append(norm.A, float32(r.NormFloat64()))
				norm.B = append(norm.B, float32(r.IntN(4))*float32(r.Float64()))
			}
			x.Epilogue.Norm = norm
		}
		op.Series = append(op.Series, x)
		cols += d
		longest = max(longest, n)
	}
	var targets []int64
	for range rows {
		switch s := &op.Series[r.IntN(streams)]; {
		case r.IntN(3) == 0 && len(s.Times.Data) > 0: // a timestamp, or a time near one
			i := r.IntN(len(s.Times.Data) / 8)
			targets = append(
				targets,
				int64(binary.LittleEndian.Uint64(s.Times.Data[8*i:]))+r.Int64N(3)-1,
			)
		default:
			targets = append(
				targets,
				base+r.Int64N(period*int64(longest+3)+1)*int64(pick(1, 1, 2, 20)),
			)
		}
	}
	op.Targets = kernel.Tensor{DType: robocache.Int64, Shape: []int{rows}, Data: times(targets)}
	gap := pick(0, 0, e, 1)
	op.Out = kernel.Tensor{
		DType:  to,
		Shape:  []int{b, rows, cols},
		Stride: []int{rows * (cols + gap), cols + gap, 1},
		Data:   make([]byte, b*rows*(cols+gap)*to.Size()),
	}
	if r.IntN(4) != 0 {
		v := tensor(robocache.Uint8, b, rows, streams)
		op.Valid = &v
	}
	op.Validate = r.IntN(4) == 0
	return op
}

// directSweep compares operations of the direct kernels with the reference.
func directSweep(t *testing.T, h *Hosted, seed uint64, n int) {
	t.Helper()
	direct, bad := 0, 0
	for i := range uint64(n) {
		op, want := directCase(seed+i), directCase(seed+i)
		l, err := h.d.Prepare(op)
		if err != nil {
			t.Fatalf("seed %d: %v", seed+i, err)
		}
		for _, k := range l.calls {
			if strings.HasPrefix(k.kernel, "direct_") {
				direct++
				break
			}
		}
		l.Close()
		if err := (kernel.Reference{}).Run(want); err != nil {
			t.Fatalf("seed %d: reference: %v", seed+i, err)
		}
		if err := h.Run(op); err != nil {
			t.Fatalf("seed %d: %v", seed+i, err)
		}
		say := ""
		if !sameFloats(op.Out.Data, want.Out.Data, op.Out.DType) {
			say = "values"
		}
		if op.Valid != nil && !bytes.Equal(op.Valid.Data, want.Valid.Data) {
			say += " valid"
		}
		if say != "" {
			if bad++; bad < 10 {
				x := &op.Series[0]
				t.Errorf(
					"seed %d: %s differ: %d streams, first %v %v %v of %v to %v",
					seed+i,
					say,
					len(op.Series),
					x.Values.Shape,
					x.Rule,
					x.Epilogue.Norm != nil,
					x.Values.DType,
					op.Out.DType,
				)
			}
		}
	}
	if t.Logf("%d ops, %d direct, %d differ", n, direct, bad); direct != n {
		t.Errorf("%d of %d ops went another way", n-direct, n)
	}
}

// sameFloats reports whether the bits are equal, or both values are NaN.
func sameFloats(a, b []byte, dt robocache.DType) bool {
	n := dt.Size()
	for i := 0; i < len(a); i += n {
		if bytes.Equal(a[i:i+n], b[i:i+n]) {
			continue
		}
		for _, p := range [][]byte{a[i : i+n], b[i : i+n]} {
			switch dt {
			case robocache.Float32:
				if binary.LittleEndian.Uint32(p)<<1 <= 0xff000000 {
					return false
				}
			case robocache.BFloat16:
				if binary.LittleEndian.Uint16(p)<<1 <= 0xff00 {
					return false
				}
			default:
				if binary.LittleEndian.Uint16(p)<<1 <= 0xf800 {
					return false
				}
			}
		}
	}
	return true
}

// TestDirectOnSimulator compares the direct kernels with the reference.
func TestDirectOnSimulator(t *testing.T) {
	limitDirect(t, math.MaxInt64)
	for seed := range uint64(3) { // each with another order of threads
		directSweep(
			t,
			&Hosted{d: simulator(t, sim.Options{Seed: seed + 1}, "direct", "any")},
			seed*1000,
			400,
		)
	}
	if !testing.Short() {
		d := simulator(t, sim.Options{Seed: 9, Checked: true}, "direct", "any")
		d.launcher.(*simulated).align = 1 // each tensor ends at the end of a page
		directSweep(t, &Hosted{d: d}, 50_000, 80)
	}
}

// TestDirectOnGPU compares the direct kernels with the reference.
func TestDirectOnGPU(t *testing.T) {
	limitDirect(t, math.MaxInt64)
	d := device(t)
	h := &Hosted{d: d, stream: stream(t, d)}
	directSweep(t, h, 0, 4000)
	suite(t, h, 1000, 10)
}

// TestDirectChoice checks that the direct kernels are used for operations that are small and
// supported.
func TestDirectChoice(t *testing.T) {
	d := simulator(t, sim.Options{Seed: 1}, "direct", "any", "fuse")
	kernelOf := func(change func(op *kernel.FuseOp), b int) string {
		op := trajectories(b)
		if change != nil {
			change(op)
		}
		l, err := d.Prepare(op)
		if err != nil {
			t.Fatal(err)
		}
		return l.calls[0].kernel
	}
	for want, got := range map[string]string{
		"direct_bf16_8": kernelOf(nil, 256),
		// few vectors in a row of one stream: at any size
		"direct_bf16_8  ": kernelOf(nil, 1<<14) + "  ",
		"fuse_8": kernelOf(
			func(op *kernel.FuseOp) { op.Series[0].Values.Shape[2], op.Out.Shape[2] = 128, 128 },
			1<<12,
		),
		"fuse_any": kernelOf(
			func(op *kernel.FuseOp) {
				op.Series[0].Rule.Mode = kernel.Mean
				op.Series[0].Rule.After = 1
			},
			4,
		),
		"fuse_8 ": kernelOf(
			func(op *kernel.FuseOp) { op.Series[0].Rule.Edge = kernel.Extrapolate },
			4,
		) + " ",
		"direct_bf16_8 ": kernelOf(
			func(op *kernel.FuseOp) { op.Series[0].Rule.Mode = kernel.Nearest },
			4,
		) + " ",
		"direct_bf16_4_scaled": kernelOf(
			func(op *kernel.FuseOp) { op.Out.DType = robocache.Float32 },
			4,
		),
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
