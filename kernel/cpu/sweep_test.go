package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// dice draws random operations. All of them are legal, except that a few timestamps are not in
// order.
type dice struct{ *rand.Rand }

// oneOf returns one of the types at random.
func (r dice) oneOf(d ...robocache.DType) robocache.DType { return d[r.IntN(len(d))] }

// layout gives a tensor of this shape its own memory: in C order, with gaps, with reversed axes, or
// expanded.
func (r dice) layout(d robocache.DType, source bool, shape ...int) kernel.Tensor {
	t := kernel.Tensor{DType: d, Shape: shape}
	n := len(shape)
	t.Stride = make([]int, n)
	reach := 1
	for a := n - 1; a >= 0; a-- {
		s := reach
		switch r.IntN(8) {
		case 0:
			s *= 2
		case 1:
			s += 3
		}
		if a == n-1 && r.IntN(3) > 0 {
			s = 1
		}
		t.Stride[a] = s
		if shape[a] > 0 {
			reach = s*(shape[a]-1) + reach
		}
	}
	for a := range n {
		switch {
		case r.IntN(12) == 0 && shape[a] > 0:
			t.Base += t.Stride[a] * (shape[a] - 1)
			t.Stride[a] = -t.Stride[a]
		case source && r.IntN(12) == 0:
			t.Stride[a] = 0
		}
	}
	pad := r.IntN(9)
	t.Base += pad
	t.Data = make([]byte, (reach+pad)*d.Size()+r.IntN(8))
	if source && r.IntN(6) == 0 {
		// The address is not a multiple of the type's size.
		t.Data = make([]byte, len(t.Data)+1)[1:]
	}
	return t
}

// special are values at the limits of the types.
var special = []float64{
	0,
	math.Copysign(0, -1),
	math.Inf(1),
	math.Inf(-1),
	math.NaN(),
	1e-310,
	1e-45,
	-1e-40,
	3e38,
	-3.3e38,
	65504,
	65520,
	1e300,
	0.1,
	1,
	-1,
	math.Pi,
}

// values fills the tensor's memory with random numbers. In a third of the tensors some are special
// values, in another third the exponents are far apart.
func (r dice) values(t *kernel.Tensor) {
	for i := range t.Data {
		t.Data[i] = byte(r.Uint32())
	}
	if !t.DType.Float() {
		if t.DType == robocache.Bool {
			for i := range t.Data {
				t.Data[i] &= 1
			}
		}
		return
	}
	wild := r.IntN(3)
	for o := 0; o+t.DType.Size() <= len(t.Data); o += t.DType.Size() {
		x := r.NormFloat64()
		switch {
		case wild == 0 && r.IntN(6) == 0:
			x = special[r.IntN(len(special))]
		case wild == 1:
			x *= math.Exp2(float64(r.IntN(60) - 30))
		}
		putFloat(t.Data[o:], t.DType, x)
	}
}

// floats fills a tensor with normal numbers.
func (r dice) floats(t *kernel.Tensor) {
	for o := 0; o+t.DType.Size() <= len(t.Data); o += t.DType.Size() {
		putFloat(t.Data[o:], t.DType, r.NormFloat64())
	}
}

// putFloat writes x in a floating-point type.
func putFloat(b []byte, d robocache.DType, x float64) {
	switch d {
	case robocache.Float32:
		le.PutUint32(b, math.Float32bits(float32(x)))
	case robocache.Float64:
		le.PutUint64(b, math.Float64bits(x))
	case robocache.Float16:
		le.PutUint16(b, kernel.Float64to16(x))
	default:
		le.PutUint16(b, kernel.Float64toB16(x))
	}
}

// timestamps writes n ordered times, starting at an index.
func (r dice) timestamps(t *kernel.Tensor, at func(i int) int, n int) {
	now := int64(r.IntN(1000))
	if r.IntN(3) == 0 {
		now += 1_760_000_000_000_000_000
	}
	if t.DType != robocache.Int64 {
		now %= 1e9
	}
	step, jitter := int64(1)<<r.IntN(31), r.IntN(4)
	for i := range n {
		r.time(t, at(i), now)
		switch {
		case jitter == 0:
			now += step
		case jitter == 1:
			now += step + r.Int64N(step/4+1)
		case r.IntN(5) > 0:
			now += r.Int64N(2 * step)
		}
		if r.IntN(60) == 0 {
			now += 20 * step
		}
	}
	if n > 2 && r.IntN(40) == 0 {
		r.time(t, at(n/2), now+1)
	}
}

// time writes a time to element o after the base of t, in ns or in seconds.
func (r dice) time(t *kernel.Tensor, o int, ns int64) {
	d := t.Data[(t.Base+o)*t.DType.Size():]
	switch t.DType {
	case robocache.Int64:
		le.PutUint64(d, uint64(ns))
	case robocache.Float64:
		le.PutUint64(d, math.Float64bits(float64(ns)*1e-9))
	default:
		le.PutUint32(d, math.Float32bits(float32(float64(ns)*1e-9)))
	}
}

// readTime returns the time of element o after the base of t, in ns.
func readTime(t *kernel.Tensor, o int) int64 {
	d := t.Data[(t.Base+o)*t.DType.Size():]
	if t.DType == robocache.Int64 {
		return int64(le.Uint64(d))
	}
	return int64(readNumber(d, t.DType, 0) * 1e9)
}

// rule returns a random rule for cols columns.
func (r dice) rule(cols int) kernel.Rule {
	rule := kernel.Rule{
		Mode:   kernel.Mode(r.IntN(7)),
		Edge:   kernel.Edge(r.IntN(4)),
		Before: 1 << r.IntN(30),
		After:  1 << r.IntN(30),
	}
	if r.IntN(5) == 0 && cols%4 == 0 {
		rule.Mode = kernel.Slerp
		return rule
	}
	if rule.Mode == kernel.Slerp && cols%4 != 0 {
		rule.Quats = [][4]int{}
		if cols > 4 {
			rule.Quats = [][4]int{{4, 1, 2, 3}}
		}
	}
	if r.IntN(2) == 0 {
		rule.Mode = kernel.Linear
	}
	if rule.Edge == kernel.ErrorEdge && r.IntN(4) > 0 {
		rule.Edge = kernel.Mask
	}
	if r.IntN(3) == 0 {
		rule.MaxGap = 1 << r.IntN(32)
	}
	return rule
}

// epilogue returns a random epilogue for cols columns.
func (r dice) epilogue(cols int, out robocache.DType) (e kernel.Epilogue) {
	if !out.Float() || r.IntN(2) == 0 {
		return e
	}
	e.Unit = r.IntN(4) == 0
	if r.IntN(2) == 0 && cols > 0 {
		channels := cols
		if r.IntN(3) == 0 {
			for _, p := range []int{7, 3, 2} {
				if cols%p == 0 {
					channels = p
					e.Plane = r.IntN(2) * cols / p
					break
				}
			}
		}
		a, b := make([]float64, channels), make([]float64, channels)
		for i := range a {
			a[i] = r.NormFloat64()
			if r.IntN(5) > 0 {
				b[i] = a[i] + r.ExpFloat64()
			} else {
				b[i] = a[i]
			}
		}
		if r.IntN(2) == 0 {
			e.Norm = kernel.NewMinMax(a, b)
		} else {
			for i := range b {
				b[i] -= a[i]
			}
			e.Norm = kernel.NewMeanStd(a, b)
		}
	}
	if r.IntN(5) == 0 {
		e.Clip = &[2]float32{-0.5, 0.7}
	}
	if r.IntN(8) == 0 {
		e.Augment = &kernel.Augment{
			Seed:    r.Uint64(),
			Epoch:   3,
			Noise:   0.1,
			Dropout: 0.2,
			ScaleLo: 0.5,
			ScaleHi: 2,
		}
	}
	return e
}

// dims are numbers of columns, chosen around the widths of the vector loops.
var dims = []int{1, 2, 3, 4, 5, 7, 8, 12, 13, 15, 16, 31, 32, 33, 40, 64, 100, 128, 130, 160}

// fuse returns a random operation. Some have several series of one clock.
func (r dice) fuse() *kernel.FuseOp {
	batch, rows := r.IntN(6), r.IntN(80)
	if r.IntN(8) == 0 {
		rows = 500 + r.IntN(200)
	}
	timeType := r.oneOf(robocache.Int64, robocache.Int64, robocache.Float64, robocache.Float32)
	op := &kernel.FuseOp{}
	if timeType != robocache.Int64 && r.IntN(2) == 0 {
		op.Clock, op.Epsilon = kernel.AsGiven, 1e-8
	}
	out := r.oneOf(
		robocache.Float32,
		robocache.Float32,
		robocache.Float16,
		robocache.BFloat16,
		robocache.Float64,
	)
	if r.IntN(10) == 0 {
		out = r.oneOf(robocache.Uint8, robocache.Int16, robocache.Int64, robocache.Bool)
	}
	cols := 0
	for i := range 1 + r.IntN(3) {
		s := kernel.Series{Name: strconv.Itoa(i)}
		d := dims[r.IntN(len(dims))]
		from := out
		if out.Float() && r.IntN(2) == 0 {
			from = r.oneOf(
				robocache.Float32,
				robocache.Float16,
				robocache.BFloat16,
				robocache.Float64,
				robocache.Uint8,
				robocache.Int32,
			)
		}
		s.Rule, s.Epilogue = r.rule(d), r.epilogue(d, out)
		s.Rule.Continuous = from.Float() && r.IntN(3) == 0
		if !out.Float() || op.Clock == kernel.AsGiven && s.Rule.Mode == kernel.Mean {
			s.Rule.Mode = kernel.Nearest
		}
		samples := r.IntN(60)
		switch r.IntN(4) {
		case 0: // ragged
			off := kernel.Tensor{
				DType: robocache.Int64,
				Shape: []int{batch + 1},
				Data:  make([]byte, 8*(batch+1)),
			}
			total := 0
			for b := range batch {
				le.PutUint64(off.Data[8*b:], uint64(total))
				total += r.IntN(30)
			}
			le.PutUint64(off.Data[8*batch:], uint64(total))
			s.Offsets = &off
			s.Values, s.Times = r.layout(from, true, total, d), r.layout(timeType, false, total)
			for b := range batch {
				first := int(le.Uint64(off.Data[8*b:]))
				r.timestamps(
					&s.Times,
					func(i int) int { return (first + i) * s.Times.Stride[0] },
					int(le.Uint64(off.Data[8*b+8:]))-first,
				)
			}
		case 1: // shared
			s.Values = r.layout(from, true, batch, samples, d)
			s.Times = r.layout(timeType, false, samples)
			r.timestamps(&s.Times, func(i int) int { return i * s.Times.Stride[0] }, samples)
		default:
			s.Values = r.layout(from, true, batch, samples, d)
			s.Times = r.layout(timeType, false, batch, samples)
			if r.IntN(6) == 0 {
				s.Times.Base, s.Times.Stride = 0, []int{0, 1}
			}
			for b := range batch {
				r.timestamps(
					&s.Times,
					func(i int) int { return b*s.Times.Stride[0] + i*s.Times.Stride[1] },
					samples,
				)
			}
			if r.IntN(3) == 0 {
				l := kernel.Tensor{
					DType: robocache.Int64,
					Shape: []int{batch},
					Data:  make([]byte, 8*batch),
				}
				for b := range batch {
					le.PutUint64(l.Data[8*b:], uint64(r.IntN(samples+1)))
				}
				s.Lengths = &l
			}
		}
		if i > 0 && r.IntN(3) == 0 && op.Series[0].Offsets == nil &&
			op.Series[0].Values.Shape[1] > 0 {
			// This series has the clock of the first.
			o := op.Series[0]
			s.Times, s.Lengths, s.Offsets = o.Times, o.Lengths, nil
			s.Values = r.layout(from, true, batch, o.Values.Shape[1], d)
			if r.IntN(2) == 0 {
				s.Rule = o.Rule
				if s.Rule.Mode == kernel.Slerp {
					s.Rule.Mode = kernel.Linear
				}
			}
		}
		r.values(&s.Values)
		op.Series = append(op.Series, s)
		cols += d
	}
	if r.IntN(2) == 0 {
		op.Targets = r.layout(timeType, false, rows)
		r.targets(op, 0, 0, rows)
	} else {
		op.Targets = r.layout(timeType, false, batch, rows)
		for b := range batch {
			r.targets(op, b, b*op.Targets.Stride[0], rows)
		}
	}
	op.Out = r.layout(out, false, batch, rows, cols)
	if r.IntN(3) == 0 {
		op.Out = kernel.Tensor{
			DType: out,
			Shape: []int{batch, rows, cols},
			Data:  make([]byte, max(batch*rows*cols*out.Size(), 4096)),
		}
	}
	if r.IntN(2) == 0 {
		v := r.layout(robocache.Uint8, false, batch, rows, len(op.Series))
		op.Valid = &v
	}
	if r.IntN(3) == 0 {
		op.Counts = &kernel.Tensor{DType: robocache.Int64, Shape: []int{2}, Data: make([]byte, 16)}
	}
	return op
}

// targets writes times near the timestamps of the first series: on them, between them, and outside.
// They may be unordered.
func (r dice) targets(op *kernel.FuseOp, b, at, rows int) {
	t := &op.Targets
	step := t.Stride[len(t.Stride)-1]
	first := &op.Series[0].Times
	n := first.Len()
	var all []int64
	for range rows {
		x := int64(r.IntN(1 << 30))
		if n > 0 {
			row := 0
			i := r.IntN(first.Shape[len(first.Shape)-1])
			if len(first.Shape) == 2 {
				row = b * first.Stride[0]
			}
			x = readTime(first, row+i*first.Stride[len(first.Stride)-1])
			switch r.IntN(4) {
			case 0:
			case 1:
				x += int64(r.IntN(1<<20)) - 1<<19
			default:
				x += r.Int64N(1 << (1 + r.IntN(30)))
			}
		}
		all = append(all, x)
	}
	if r.IntN(4) > 0 {
		slices.Sort(all)
	}
	for i, x := range all {
		r.time(t, at+i*step, x)
	}
}

// sameBits compares results. All NaN are equal.
func sameBits(a, b []byte, d robocache.DType) error {
	if bytes.Equal(a, b) {
		return nil
	}
	n := d.Size()
	for o := 0; o+n <= len(a); o += n {
		x, y := a[o:o+n], b[o:o+n]
		if !bytes.Equal(x, y) && !(d.Float() && isNaN(x, d) && isNaN(y, d)) {
			return fmt.Errorf("element %d: %x, want %x", o/n, x, y)
		}
	}
	return nil
}

// near compares results with the tolerance of slerp: a float32 step, and what float64 does not
// resolve near zero.
func near(a, b []byte, d robocache.DType) error {
	n := d.Size()
	for o := 0; o+n <= len(a); o += n {
		x, y := float(a[o:], d), float(b[o:], d)
		if isNaN(a[o:o+n], d) && isNaN(b[o:o+n], d) || x == y || math.Abs(x-y) < 0x1p-40 ||
			d != robocache.Float16 && d != robocache.BFloat16 &&
				math.Abs(x-y) <= 0x1.1p-23*math.Abs(y) {
			continue
		}
		return fmt.Errorf("element %d: %v, want %v", o/n, x, y)
	}
	return nil
}

// float returns the value of a floating-point element.
func float(b []byte, d robocache.DType) float64 {
	switch d {
	case robocache.Float16:
		return float64(kernel.Float16to32(le.Uint16(b)))
	case robocache.BFloat16:
		return float64(kernel.BFloat16to32(le.Uint16(b)))
	case robocache.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	}
	return math.Float64frombits(le.Uint64(b))
}

// isNaN reports whether an element is a NaN.
func isNaN(b []byte, d robocache.DType) bool { x := float(b, d); return x != x }

// twin returns a tensor of the same layout with its own memory.
func twin(t *kernel.Tensor) *kernel.Tensor {
	if t == nil {
		return nil
	}
	c := *t
	c.Data = slices.Clone(t.Data)
	return &c
}

// runs returns the number of random operations: ROBOCACHE_SWEEP, or short if it is not set.
func runs(t *testing.T, short int) int {
	if s := os.Getenv("ROBOCACHE_SWEEP"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return short
}

// TestFuseIsTheReference compares random FuseOps with the reference, bit by bit. Slerp may differ
// by the tolerance of near. Every second operation stores around the caches.
func TestFuseIsTheReference(t *testing.T) {
	failed := 0
	defer func(n int) { streamBytes = n }(streamBytes)
	n := runs(t, 3000)
	for seed := range n {
		streamBytes = seed % 2 << 22
		r := dice{rand.New(rand.NewPCG(uint64(seed), 7))}
		op := r.fuse()
		want := *op
		want.Out, want.Valid, want.Counts = *twin(&op.Out), twin(op.Valid), twin(op.Counts)
		wantErr := kernel.Reference{}.Run(&want)
		before := string(op.Series[0].Values.Data)
		err := New(1 + seed%4).Run(op)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("seed %d: %v, want %v", seed, err, wantErr)
		}
		if err != nil {
			failed++
			continue
		}
		slerp := false
		for i := range op.Series {
			slerp = slerp || op.Series[i].Rule.Mode == kernel.Slerp
		}
		if slerp {
			err = near(op.Out.Data, want.Out.Data, op.Out.DType)
		} else {
			err = sameBits(op.Out.Data, want.Out.Data, op.Out.DType)
		}
		if err == nil && op.Valid != nil {
			err = sameBits(op.Valid.Data, want.Valid.Data, robocache.Uint8)
		}
		if err == nil && op.Counts != nil {
			err = sameBits(op.Counts.Data, want.Counts.Data, robocache.Int64)
		}
		if err == nil && before != string(op.Series[0].Values.Data) {
			err = fmt.Errorf("the source was written to")
		}
		if err != nil {
			for i := range op.Series {
				s := &op.Series[i]
				t.Logf(
					"series %d: %v %v %v mode %v edge %v gap %d times %v epilogue %+v",
					i,
					s.Values.DType,
					s.Values.Shape,
					s.Values.Stride,
					s.Rule.Mode,
					s.Rule.Edge,
					s.Rule.MaxGap,
					s.Times.DType,
					s.Epilogue,
				)
			}
			t.Fatalf(
				"seed %d: out %v %v %v: %v",
				seed,
				op.Out.DType,
				op.Out.Shape,
				op.Out.Stride,
				err,
			)
		}
	}
	if failed > n/2 {
		t.Errorf("%d of %d were errors: little was compared", failed, n)
	}
	t.Logf("%d of %d were errors", failed, n)
}
