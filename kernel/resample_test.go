package kernel_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// everyType holds every type of fixed size.
var everyType = []robocache.DType{
	robocache.Bool,
	robocache.Int8,
	robocache.Int16,
	robocache.Int32,
	robocache.Int64,
	robocache.Uint8,
	robocache.Uint16,
	robocache.Uint32,
	robocache.Uint64,
	robocache.Float16,
	robocache.BFloat16,
	robocache.Float32,
	robocache.Float64,
}

// f32 returns the memory of float32 numbers.
func f32(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// back32 returns the float32 numbers in memory; it is the inverse of f32.
func back32(b []byte) (v []float32) {
	for ; len(b) >= 4; b = b[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return v
}

// blends returns a plan whose rows are blends of samples 0 and 1 at the given weights.
func blends(mode kernel.Mode, w ...float64) *kernel.Plan {
	p := &kernel.Plan{Mode: mode, Sources: 2}
	for _, x := range w {
		p.Kind = append(p.Kind, kernel.Blend)
		p.Left, p.Right = append(p.Left, 0), append(p.Right, 1)
		p.Weight, p.Valid = append(p.Weight, x), append(p.Valid, 1)
	}
	return p
}

// TestLayouts covers kernel.K8. Random layouts of source and result, for every type, must give the
// same elements as dense layouts. Nothing outside the result's view may be written.
func TestLayouts(t *testing.T) {
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 3))
		dt := everyType[rng.IntN(len(everyType))]
		size := dt.Size()
		S, D, T := 1+rng.IntN(5), 1+rng.IntN(70), rng.IntN(8)
		mode := kernel.Previous
		if dt.Float() {
			mode = []kernel.Mode{
				kernel.Linear,
				kernel.Previous,
				kernel.Mean,
				kernel.Angle,
			}[rng.IntN(4)]
		}
		p := &kernel.Plan{Mode: mode, Sources: S}
		for range T {
			k := []kernel.Kind{
				kernel.Zero,
				kernel.Copy,
				kernel.Copy,
				kernel.Blend,
				kernel.Window,
			}[rng.IntN(5)]
			l, r := rng.IntN(S), rng.IntN(S)
			if k == kernel.Blend && (mode == kernel.Previous || mode == kernel.Mean) ||
				k == kernel.Window && mode != kernel.Mean {
				k = kernel.Copy
			}
			if k == kernel.Window {
				l, r = min(l, r), max(l, r)+1
			}
			p.Kind = append(p.Kind, k)
			p.Left = append(p.Left, int32(l))
			p.Right = append(p.Right, int32(r))
			p.Weight, p.Valid = append(p.Weight, rng.Float64()), append(p.Valid, uint8(rng.IntN(2)))
		}
		// A random view of rows × cols over its own memory.
		view := func(rows, cols int, free bool) kernel.Matrix {
			m := kernel.Matrix{DType: dt, Rows: rows, Cols: cols, ColStride: 1 + rng.IntN(3)}
			m.RowStride = m.ColStride*cols + rng.IntN(4)
			if rng.IntN(3) == 0 { // a large distance between columns
				m.RowStride = 1 + rng.IntN(2)
				m.ColStride = m.RowStride*rows + rng.IntN(3)
			}
			if free && rng.IntN(4) == 0 {
				m.RowStride = 0
			}
			if free && rng.IntN(4) == 0 {
				m.ColStride = 0
			}
			n := (rows-1)*m.RowStride + (cols-1)*m.ColStride + 1
			if rng.IntN(2) == 0 {
				m.Base, m.RowStride = m.Base+max(rows-1, 0)*m.RowStride, -m.RowStride
			}
			if rng.IntN(2) == 0 {
				m.Base, m.ColStride = m.Base+(cols-1)*m.ColStride, -m.ColStride
			}
			pad := rng.IntN(3)
			m.Base += pad
			skip := rng.IntN(9)
			m.Data = make([]byte, skip+max(n+pad+rng.IntN(3), 0)*size)[skip:]
			for i := range m.Data {
				m.Data[i] = byte(rng.Uint32())
				if dt == robocache.Bool {
					m.Data[i] &= 1
				}
			}
			return m
		}
		src := view(S, D, true)
		dense := make([]byte, 0, S*D*size)
		for i := range S {
			for j := range D {
				o := (src.Base + i*src.RowStride + j*src.ColStride) * size
				dense = append(dense, src.Data[o:o+size]...)
			}
		}
		want := make([]byte, T*D*size)
		if err := kernel.Resample(kernel.Dense(want, dt, T, D), kernel.Dense(dense, dt, S, D), p,
			kernel.Options{}); err != nil {
			t.Fatal(err)
		}
		dst := view(max(T, 1), D, false)
		dst.Rows = T
		before := slices.Clone(dst.Data)
		if err := kernel.Resample(dst, src, p, kernel.Options{}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range T {
			for j := range D {
				o := (dst.Base + i*dst.RowStride + j*dst.ColStride) * size
				if string(dst.Data[o:o+size]) != string(want[(i*D+j)*size:(i*D+j+1)*size]) {
					t.Fatalf(
						"seed %d: %v %v row %d column %d: %x, dense gives %x",
						seed,
						dt,
						mode,
						i,
						j,
						dst.Data[o:o+size],
						want[(i*D+j)*size:(i*D+j+1)*size],
					)
				}
				copy(before[o:o+size], dst.Data[o:o+size])
			}
		}
		if string(before) != string(dst.Data) {
			t.Fatalf("seed %d: memory outside the result's view was written", seed)
		}
	}
}

// TestTypes covers kernel.K7.
func TestTypes(t *testing.T) {
	for _, from := range everyType {
		for _, to := range everyType {
			for m := kernel.Linear; m <= kernel.Mean; m++ {
				p := blends(m, 0.5)
				switch m {
				case kernel.Nearest, kernel.Previous, kernel.Next:
					p.Kind[0] = kernel.Copy
				case kernel.Mean:
					p.Kind[0], p.Right[0] = kernel.Window, 2
				}
				src := kernel.Dense(make([]byte, 8*from.Size()), from, 2, 4)
				err := kernel.Resample(
					kernel.Dense(make([]byte, 4*to.Size()), to, 1, 4),
					src,
					p,
					kernel.Options{},
				)
				ok := from == to || from.Float() && to != robocache.Bool || to.Float()
				if m.Computes() && from == robocache.Bool ||
					m.Computes() && from.Integer() && !to.Float() ||
					m.Computes() && from.Float() && to == robocache.Bool {
					ok = false
				}
				if ok != (err == nil) || err != nil && !errors.Is(err, robocache.ErrMisuse) {
					t.Errorf("%v %v → %v: %v", m, from, to, err)
				}
			}
		}
	}
	for _, dt := range []robocache.DType{robocache.String, robocache.JSON, robocache.InvalidDType} {
		err := kernel.Resample(
			kernel.Dense(nil, dt, 0, 1),
			kernel.Dense(nil, dt, 0, 1),
			&kernel.Plan{},
			kernel.Options{},
		)
		if !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("%v: %v", dt, err)
		}
	}
}

// TestMisuse checks that wrong calls return an error with the expected text and never panic.
func TestMisuse(t *testing.T) {
	src := kernel.Dense(f32(1, 2, 3, 4), robocache.Float32, 2, 2)
	out := func() kernel.Matrix { return kernel.Dense(make([]byte, 8), robocache.Float32, 1, 2) }
	for _, c := range []struct {
		name, phrase string
		dst, src     kernel.Matrix
		plan         *kernel.Plan
		opt          kernel.Options
	}{
		{
			"rows",
			"out has wrong shape",
			out(),
			src,
			blends(kernel.Linear, .5, .5),
			kernel.Options{},
		},
		{
			"columns",
			"out has wrong shape",
			out(),
			kernel.Dense(f32(1, 2), robocache.Float32, 2, 1),
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{
			"sources",
			"length mismatch",
			out(),
			kernel.Dense(f32(1, 2), robocache.Float32, 1, 2),
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{
			"valid",
			"valid",
			out(),
			src,
			blends(kernel.Linear, .5),
			kernel.Options{Valid: make([]uint8, 3)},
		},
		{
			"aliased",
			"aliases",
			src.Columns(0, 2),
			src,
			&kernel.Plan{
				Mode:    kernel.Linear,
				Sources: 2,
				Kind:    make([]kernel.Kind, 2),
				Left:    make([]int32, 2),
				Right:   make([]int32, 2),
				Weight:  make([]float64, 2),
				Valid:   make([]uint8, 2),
			},
			kernel.Options{},
		},
		{
			"overlapping out",
			"overlaps itself",
			kernel.Matrix{Data: make([]byte, 8), DType: robocache.Float32, Rows: 1, Cols: 2},
			src,
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{
			"short",
			"length mismatch",
			out(),
			kernel.Matrix{
				Data:      make([]byte, 15),
				DType:     robocache.Float32,
				Rows:      2,
				Cols:      2,
				RowStride: 2,
				ColStride: 1,
			},
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{
			"stride overflow",
			"length mismatch",
			out(),
			kernel.Matrix{
				Data:      make([]byte, 16),
				DType:     robocache.Float32,
				Rows:      2,
				Cols:      2,
				RowStride: math.MaxInt,
				ColStride: math.MaxInt,
			},
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{
			"before the memory",
			"length mismatch",
			out(),
			kernel.Matrix{
				Data:      make([]byte, 16),
				DType:     robocache.Float32,
				Rows:      2,
				Cols:      2,
				RowStride: -2,
				ColStride: 1,
			},
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{
			"negative extent",
			"negative extent",
			out(),
			kernel.Matrix{DType: robocache.Float32, Rows: -1, Cols: 2},
			blends(kernel.Linear, .5),
			kernel.Options{},
		},
		{"quaternions", "must have shape", out(), src, blends(kernel.Slerp, .5), kernel.Options{}},
		{
			"quaternion channel",
			"outside the data",
			out(),
			src,
			blends(kernel.Slerp, .5),
			kernel.Options{Rule: kernel.Rule{Quats: [][4]int{{0, 1, 2, 3}}}},
		},
		{
			"period",
			"period",
			out(),
			src,
			blends(kernel.Angle, .5),
			kernel.Options{Rule: kernel.Rule{Period: -1}},
		},
		{
			"norm",
			"statistics",
			out(),
			src,
			blends(kernel.Linear, .5),
			kernel.Options{
				Epilogue: kernel.Epilogue{
					Norm: kernel.NewMeanStd([]float64{1, 2, 3}, []float64{1, 2, 3}),
				},
			},
		},
		{
			"plan row",
			"plan row",
			out(),
			src,
			&kernel.Plan{
				Sources: 2,
				Kind:    []kernel.Kind{kernel.Copy},
				Left:    []int32{2},
				Right:   []int32{0},
				Weight:  []float64{0},
				Valid:   []uint8{0},
			},
			kernel.Options{},
		},
		{
			"plan window",
			"plan row",
			out(),
			src,
			&kernel.Plan{
				Sources: 2,
				Kind:    []kernel.Kind{kernel.Window},
				Left:    []int32{1},
				Right:   []int32{1},
				Weight:  []float64{0},
				Valid:   []uint8{0},
			},
			kernel.Options{},
		},
		{
			"plan kind",
			"plan row",
			out(),
			src,
			&kernel.Plan{
				Sources: 2,
				Kind:    []kernel.Kind{9},
				Left:    []int32{0},
				Right:   []int32{0},
				Weight:  []float64{0},
				Valid:   []uint8{0},
			},
			kernel.Options{},
		},
		{
			"plan arrays",
			"length mismatch",
			out(),
			src,
			&kernel.Plan{Sources: 2, Kind: []kernel.Kind{0}},
			kernel.Options{},
		},
	} {
		err := kernel.Resample(c.dst, c.src, c.plan, c.opt)
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), c.phrase) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// Neighboring columns of one buffer are not aliases.
	buf := make([]byte, 4*2*5)
	whole := kernel.Dense(buf, robocache.Float32, 2, 5)
	if err := kernel.Resample(whole.Columns(3, 2), whole.Columns(0, 2),
		blends(kernel.Linear, .5, .25), kernel.Options{}); err != nil {
		t.Errorf("disjoint columns: %v", err)
	}
	if err := kernel.Resample(whole.Columns(1, 2), whole.Columns(0, 2),
		blends(kernel.Linear, .5, .25), kernel.Options{}); err == nil {
		t.Error("overlapping columns passed")
	}
}

// TestWeightZero covers kernel.K2. At weight 0 the stored bits are returned; arithmetic would give
// NaN for Inf and +0 for -0.
func TestWeightZero(t *testing.T) {
	inf, zero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	src := kernel.Dense(f32(1, zero, zero, inf, inf, 5, 2, 1), robocache.Float32, 2, 4)
	for _, m := range []kernel.Mode{kernel.Linear, kernel.Angle, kernel.Slerp} {
		out := make([]byte, 16)
		if err := kernel.Resample(kernel.Dense(out, robocache.Float32, 1, 4), src, blends(m, 0),
			kernel.Options{}); err != nil {
			t.Fatal(err)
		}
		if string(out) != string(src.Data[:16]) {
			t.Errorf("%v: %v, want %v", m, back32(out), back32(src.Data[:16]))
		}
	}
	// A weight that rounds to 0 in float32 is 0 for float32 data.
	out := make([]byte, 16)
	if err := kernel.Resample(kernel.Dense(out, robocache.Float32, 1, 4), src,
		blends(kernel.Linear, 1e-60), kernel.Options{}); err != nil || string(out) !=
		string(src.Data[:16]) {
		t.Errorf("%v %v", back32(out), err)
	}
}

// TestOneRounding covers kernel.K5 and kernel.K11: float64 is rounded to the small types in one
// step. Rounding through float32 would create ties that do not exist.
func TestOneRounding(t *testing.T) {
	var b []byte
	for _, x := range []float64{1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, 0, 0} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	}
	p := blends(kernel.Previous, 0)
	p.Kind[0] = kernel.Copy
	for _, c := range []struct {
		dt   robocache.DType
		col  int
		want uint16
	}{{robocache.Float16, 0, 0x3c01}, {robocache.BFloat16, 1, 0x3f81}} {
		out := make([]byte, 4)
		if err := kernel.Resample(kernel.Dense(out, c.dt, 1, 2),
			kernel.Dense(b, robocache.Float64, 2, 2), p, kernel.Options{}); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint16(out[2*c.col:]); got != c.want {
			t.Errorf("%v: %04x, want %04x", c.dt, got, c.want)
		}
	}
}

// TestNorm covers kernel.K10, and kernel.K9 (zero rows stay zero bits).
func TestNorm(t *testing.T) {
	src := kernel.Dense(f32(1, 5, 7, 3, 5, float32(math.NaN())), robocache.Float32, 2, 3)
	p := blends(kernel.Linear, 0.5, 0.5)
	p.Kind[1] = kernel.Zero
	run := func(n *kernel.Norm) []float32 {
		out := make([]byte, 24)
		for i := range out {
			out[i] = 0xff
		}
		if err := kernel.Resample(kernel.Dense(out, robocache.Float32, 2, 3), src, p,
			kernel.Options{Epilogue: kernel.Epilogue{Norm: n}}); err != nil {
			t.Fatal(err)
		}
		return back32(out)
	}
	// These are variables, because the compiler computes constants exactly.
	m, s, eps := float32(0.3), float32(0.7), float32(1e-8)
	if got := run(kernel.NewMeanStd([]float64{0.3, 5, 0}, []float64{0.7, 0, 0})); got[0] !=
		(2-m)/(s+eps) || got[1] != 0 || got[2] != 0 || got[3] != 0 || got[4] != 0 {
		t.Errorf("mean/std: %v", got)
	}
	s = 3e-8 // small enough that adding 1e-8 makes a difference
	if got := run(kernel.NewMeanStd([]float64{0.3, 5, 0}, []float64{3e-8, 0, 0})); got[0] !=
		(2-m)/(s+eps) {
		t.Errorf("mean/std with a small std: %v", got)
	}
	lo, hi := float32(0.3), float32(0.9)
	if got := run(kernel.NewMinMax([]float64{0.3, 5, 0}, []float64{0.9, 5, 0})); got[0] !=
		2*(2-lo)/(hi-lo)-1 || got[1] != 0 || got[2] != 0 || got[3] != 0 {
		t.Errorf("min/max: %v", got)
	}
	bytes := make([]byte, 512)
	for i := range 256 {
		bytes[i], bytes[256+i] = byte(i), byte(i)
	}
	out := make([]byte, 1024)
	q := blends(kernel.Previous, 0)
	q.Kind[0] = kernel.Copy
	if err := kernel.Resample(kernel.Dense(out, robocache.Float32, 1, 256),
		kernel.Dense(bytes, robocache.Uint8, 2, 256), q,
		kernel.Options{Epilogue: kernel.Epilogue{Unit: true}}); err != nil {
		t.Fatal(err)
	}
	for i, v := range back32(out) {
		x := float32(i)
		if v != x/255 {
			t.Errorf("%d / 255 = %v", i, v)
		}
	}
}

// TestCasts covers kernel.K11: saturation, NaN and their counts.
func TestCasts(t *testing.T) {
	inf := float32(math.Inf(1))
	src := kernel.Dense(
		append(f32(1.9, -1.9, 1e30, -inf, float32(math.NaN()), 65520), f32(0, 0, 0, 0, 0, 0)...),
		robocache.Float32,
		2,
		6,
	)
	p := blends(kernel.Previous, 0)
	p.Kind[0] = kernel.Copy
	for _, c := range []struct {
		dt   robocache.DType
		want []int64
		over int64
		nan  int64
	}{
		{robocache.Int8, []int64{1, -1, 127, -128, 0, 127}, 3, 1},
		{robocache.Uint8, []int64{1, 0, 255, 0, 0, 255}, 4, 1},
		{robocache.Int16, []int64{1, -1, 32767, -32768, 0, 32767}, 3, 1},
		{robocache.Uint16, []int64{1, 0, 65535, 0, 0, 65520}, 3, 1},
		{robocache.Int32, []int64{1, -1, math.MaxInt32, math.MinInt32, 0, 65520}, 2, 1},
		{robocache.Uint32, []int64{1, 0, math.MaxUint32, 0, 0, 65520}, 3, 1},
		{robocache.Int64, []int64{1, -1, math.MaxInt64, math.MinInt64, 0, 65520}, 2, 1},
		{robocache.Uint64, []int64{1, 0, -1, 0, 0, 65520}, 3, 1},
	} {
		out := make([]byte, 6*c.dt.Size())
		var n kernel.Counts
		if err := kernel.Resample(kernel.Dense(out, c.dt, 1, 6), src, p,
			kernel.Options{Counts: &n}); err != nil {
			t.Fatal(err)
		}
		for i, w := range c.want {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], uint64(w))
			if got := out[i*c.dt.Size() : (i+1)*c.dt.Size()]; string(got) !=
				string(b[:c.dt.Size()]) {
				t.Errorf("%v column %d: %x, want %d", c.dt, i, got, w)
			}
		}
		// -1.9 truncates to -1. An unsigned type saturates it and counts an overflow.
		if n.Overflow != c.over || n.NaN != c.nan {
			t.Errorf("%v: counted %+v, want %d, %d", c.dt, n, c.over, c.nan)
		}
	}
	var n kernel.Counts
	out := make([]byte, 12)
	if err := kernel.Resample(kernel.Dense(out, robocache.Float16, 1, 6), src, p,
		kernel.Options{Counts: &n}); err != nil || n.Overflow != 2 {
		t.Errorf("float16: %+v %v", n, err)
	}
}

// TestQuats covers kernel.K6 with named groups and other, linear channels. It also covers
// sign="continuous".
func TestQuats(t *testing.T) {
	h := float32(math.Sqrt(0.5))
	src := kernel.Dense(f32(10, 0, 0, 0, 1, 0, 0, 20, 0, h, h, 0, 0, 1), robocache.Float32, 2, 7)
	out, valid := make([]byte, 28), []uint8{9}
	if err := kernel.Resample(kernel.Dense(out, robocache.Float32, 1, 7), src,
		blends(kernel.Slerp, 0.5),
		kernel.Options{Rule: kernel.Rule{Quats: [][4]int{{1, 2, 3, 4}}}, Valid: valid}); err !=
		nil {
		t.Fatal(err)
	}
	got := back32(out)
	// Quaternions (0,0,0,1) and (0,h,h,0) are 90° apart; half way between them is (0, 1/2, 1/2, h).
	want := []float32{15, 0, 0.5, 0.5, h, 0, 0.5}
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-7 {
			t.Errorf("%v, want %v", got, want)
			break
		}
	}
	if valid[0] != 1 {
		t.Error("a good row is invalid")
	}
	signs := f32(1, 0, 0, 0, -1, 0, 0, 0, -0.9, 0.1, 0, 0, 1, 0, 0, 0)
	fixed := make([]byte, len(signs))
	if err := kernel.ContinuousSigns(kernel.Dense(fixed, robocache.Float32, 4, 4),
		kernel.Dense(signs, robocache.Float32, 4, 4), nil); err != nil {
		t.Fatal(err)
	}
	f := back32(fixed)
	for i := 1; i < 4; i++ {
		if f[4*i]*f[4*i-4] < 0 {
			t.Errorf("row %d flips: %v", i, f)
		}
	}
}

// TestNoAllocation covers kernel.K12.
func TestNoAllocation(t *testing.T) {
	for m := kernel.Linear; m <= kernel.Mean; m++ {
		p := blends(m, .5, .25)
		switch m {
		case kernel.Nearest, kernel.Previous, kernel.Next:
			p.Kind[0], p.Kind[1] = kernel.Copy, kernel.Copy
		case kernel.Mean:
			p.Kind[0], p.Right[0], p.Kind[1], p.Right[1] = kernel.Window, 2, kernel.Window, 2
		}
		src := kernel.Dense(f32(make([]float32, 2*96)...), robocache.Float32, 2, 96)
		dst := kernel.Dense(make([]byte, 2*96*4), robocache.Float32, 2, 96)
		half := kernel.Dense(make([]byte, 2*96*2), robocache.Float16, 2, 96)
		valid := make([]uint8, 2)
		var counts kernel.Counts
		norm := kernel.NewMeanStd(make([]float64, 96), make([]float64, 96))
		n := testing.AllocsPerRun(20, func() {
			_ = kernel.Resample(dst, src, p, kernel.Options{Valid: valid})
			_ = kernel.Resample(
				half,
				src,
				p,
				kernel.Options{Counts: &counts, Epilogue: kernel.Epilogue{Norm: norm}},
			)
		})
		if n != 0 {
			t.Errorf("%v: %v allocations", m, n)
		}
	}
}

func BenchmarkResample(b *testing.B) {
	const S, T = 100, 50
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name string
		dt   robocache.DType
		mode kernel.Mode
		d    int
	}{
		{"linear", robocache.Float32, kernel.Linear, 32},
		{"linear", robocache.Float32, kernel.Linear, 7},
		{"linear", robocache.BFloat16, kernel.Linear, 32},
		{"linear", robocache.Float16, kernel.Linear, 32},
		{"linear", robocache.Float64, kernel.Linear, 32},
		{"previous", robocache.Float32, kernel.Previous, 32},
		{"slerp", robocache.Float32, kernel.Slerp, 32},
		{"angle", robocache.Float32, kernel.Angle, 32},
	} {
		data := make([]byte, S*c.d*c.dt.Size())
		for i := 0; i+8 <= len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], rng.Uint64()&0x3fff3fff3fff3fff)
		}
		p := &kernel.Plan{Mode: c.mode, Sources: S}
		for i := range T {
			k := kernel.Blend
			if !c.mode.Computes() {
				k = kernel.Copy
			}
			p.Kind = append(p.Kind, k)
			p.Left = append(p.Left, int32(2*i))
			p.Right = append(p.Right, int32(2*i+1))
			p.Weight, p.Valid = append(p.Weight, rng.Float64()), append(p.Valid, 1)
		}
		out := make([]byte, T*c.d*c.dt.Size())
		b.Run(
			c.name+"/"+c.dt.String()+"/D="+string(rune('0'+c.d/10))+string(rune('0'+c.d%10)),
			func(b *testing.B) {
				b.SetBytes(int64(len(out) * 3)) // two rows read, one written
				b.ReportAllocs()
				for b.Loop() {
					if err := kernel.Resample(kernel.Dense(out, c.dt, T, c.d),
						kernel.Dense(data, c.dt, S, c.d), p, kernel.Options{}); err != nil {
						b.Fatal(err)
					}
				}
			},
		)
	}
}
