package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// int64Tensor returns a host tensor of the numbers.
func int64Tensor(x ...int64) Tensor {
	t := Tensor{DType: robocache.Int64, Shape: []int{len(x)}}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(v))
	}
	return t
}

// float64Tensor returns a host tensor of the numbers.
func float64Tensor(x ...float64) Tensor {
	t := Tensor{DType: robocache.Float64, Shape: []int{len(x)}}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, math.Float64bits(v))
	}
	return t
}

// ramp returns a tensor whose elements rise by 1/4 and start again at 0 every 251 elements.
func ramp(dt robocache.DType, shape ...int) Tensor {
	t := Tensor{DType: dt, Shape: shape}
	m := Matrix{
		Data:      make([]byte, t.Len()*dt.Size()),
		DType:     dt,
		Rows:      1,
		Cols:      t.Len(),
		ColStride: 1,
	}
	for i := range t.Len() {
		m.storeRow32([]float32{float32(i%251) / 4}, 0, i, new(Counts))
	}
	t.Data = m.Data
	return t
}

// fused runs one stream into a dense result with the type of its values.
func fused(t *testing.T, values, times, targets Tensor, rule Rule) (out, valid []byte) {
	t.Helper()
	o := zeros(values.DType, values.Shape[0], targets.Shape[len(targets.Shape)-1], values.Shape[2])
	v := zeros(robocache.Uint8, o.Shape[0], o.Shape[1], 1)
	op := &FuseOp{
		Series:  []Series{{Values: values, Times: times, Rule: rule}},
		Targets: targets,
		Out:     *o,
		Valid:   v,
	}
	if err := (Reference{}).Run(op); err != nil {
		t.Fatal(err)
	}
	return o.Data, v.Data
}

// TestEarlier checks cases of resample and fuse that the earlier RoboCache computed wrongly.
func TestEarlier(t *testing.T) {
	const B, S, T, D = 32, 5, 7, 6
	timestamps, aims := int64Tensor(0, 10, 20, 30, 40), int64Tensor(-5, 0, 5, 17, 33, 40, 50)
	data := ramp(robocache.Float32, B, S, D)
	// linspace(...).expand(B, -1): all entries share one row of times.
	expanded, aimed := timestamps, aims
	expanded.Shape, expanded.Stride = []int{B, S}, []int{0, 1}
	aimed.Shape, aimed.Stride = []int{B, T}, []int{0, 1}
	contiguous := Tensor{
		DType: robocache.Int64,
		Shape: []int{B, S},
		Data:  bytes.Repeat(timestamps.Data, B),
	}
	want, _ := fused(t, data, contiguous, aims, Rule{})
	got, _ := fused(t, data, expanded, aimed, Rule{})
	if !bytes.Equal(got, want) {
		t.Error("expanded times differ from contiguous ones")
	}
	if bytes.Equal(got[:4*T*D], got[4*T*D:8*T*D]) {
		t.Error("entries do not differ: the test sees nothing")
	}
	// data[:, :, ::2]
	every := data
	every.Shape, every.Stride = []int{B, S, D / 2}, []int{S * D, D, 2}
	dense := Tensor{DType: robocache.Float32, Shape: every.Shape}
	for i := 0; i < len(data.Data); i += 8 {
		dense.Data = append(dense.Data, data.Data[i:i+4]...)
	}
	got, _ = fused(t, every, timestamps, aims, Rule{})
	if want, _ = fused(t, dense, timestamps, aims, Rule{}); !bytes.Equal(got, want) {
		t.Error("every second channel differs from contiguous data")
	}
	// x(t) = t on [0, 1], evaluated at 2 and -1, alone and with another stream.
	line := floats([]int{1, 2, 1}, 0, 1)
	got, valid := fused(t, line, float64Tensor(0, 1), float64Tensor(2, -1), Rule{})
	if x, y := read(got, 0), read(got, 1); x != 1 || y != 0 || valid[0] != 0 || valid[1] != 0 {
		t.Errorf("clamped to %v, %v, valid %v", x, y, valid)
	}
	out := zeros(robocache.Float32, 1, 2, 2)
	s := Series{Values: line, Times: float64Tensor(0, 1)}
	if err := (Reference{}).Run(&FuseOp{
		Series: []Series{s, s}, Targets: float64Tensor(2, -1),
		Out: *out,
	}); err != nil || read(out.Data, 0) != 1 || read(out.Data, 1) != 1 ||
		read(out.Data, 2) != 0 {
		t.Errorf("fused: %v, %v", out.Data, err)
	}
	// Timestamps that float32 cannot distinguish.
	const e = 1_760_000_000_000_000_000
	got, _ = fused(
		t,
		floats([]int{1, 3, 1}, 1, 2, 3),
		int64Tensor(e, e+100_000_000, e+50_000_000_000),
		int64Tensor(e, e+100_000_000, e+50_000_000_000),
		Rule{},
	)
	if read(got, 0) != 1 || read(got, 1) != 2 || read(got, 2) != 3 {
		t.Errorf("epoch timestamps: %v", got)
	}
	// More targets than the second axis of a CUDA grid allows.
	many := make([]int64, 70_000)
	for i := range many {
		many[i] = int64(i)
	}
	got, _ = fused(
		t,
		floats([]int{1, 2, 1}, 0, 69_999),
		int64Tensor(0, 69_999),
		int64Tensor(many...),
		Rule{},
	)
	for _, i := range []int{0, 1, 65_535, 65_536, 69_999} {
		if read(got, i) != float32(i) {
			t.Errorf("target %d of 70,000: %v", i, read(got, i))
		}
	}
	// bfloat16 in, bfloat16 out. Without samples, rows are invalid. float16 and float64 keep their
	// type.
	for _, dt := range []robocache.DType{robocache.BFloat16, robocache.Float16, robocache.Float64} {
		values := ramp(dt, 1, 3, 2)
		got, valid := fused(t, values, int64Tensor(0, 1, 2), int64Tensor(0, 1, 2), Rule{})
		if !bytes.Equal(got, values.Data) || !bytes.Equal(valid, []byte{1, 1, 1}) {
			t.Errorf("%v: %x, want %x", dt, got, values.Data)
		}
		none := Tensor{DType: dt, Shape: []int{1, 0, 2}}
		if got, valid := fused(t, none, int64Tensor(), int64Tensor(5), Rule{}); !bytes.Equal(got,
			make([]byte, 2*dt.Size())) || valid[0] != 0 {
			t.Errorf("%v, no samples: %x valid %v", dt, got, valid)
		}
	}
}

// read returns element i of float32 memory.
func read(
	b []byte,
	i int,
) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

// TestBeyondInt32 checks that 2^32 elements are legal, and that device memory is not read as host
// memory.
func TestBeyondInt32(t *testing.T) {
	values := floats([]int{1, 2, 1}, 3, 5)
	values.Shape, values.Stride = []int{1 << 20, 2, 1 << 12}, []int{0, 1, 0}
	op := &FuseOp{
		Series:  []Series{{Values: values, Times: int64Tensor(0, 2)}},
		Targets: int64Tensor(1),
		Out:     Tensor{DType: robocache.Float32, Shape: []int{1 << 20, 1, 1 << 12}, Addr: 1 << 40},
	}
	op.Series[0].Values.Data, op.Series[0].Values.Addr = nil, 1<<30
	for _, x := range []*Tensor{&op.Series[0].Times, &op.Targets} {
		x.Data, x.Addr = nil, 1<<20
	}
	if err := op.Check(); err != nil {
		t.Error(err)
	}
	// The host must not read the device's memory.
	if err := (Reference{}).Run(op); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "must be on the same device") {
		t.Error(err)
	}
	op.Targets = int64Tensor(1)
	if err := op.Check(); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "must be on the same device") {
		t.Errorf("host targets, device data: %v", err)
	}
}

// TestAliases checks that a result may not share memory with another tensor of the call.
// Neighboring columns of one buffer are legal.
func TestAliases(t *testing.T) {
	buf := make([]byte, 4*1000)
	at := func(base int, shape, stride []int) Tensor {
		return Tensor{DType: robocache.Float32, Data: buf, Base: base, Shape: shape, Stride: stride}
	}
	for _, c := range []struct {
		name        string
		values, out Tensor
		ok          bool
	}{
		{"apart", at(0, []int{1, 3, 2}, nil), at(100, []int{1, 3, 2}, nil), true},
		{"the same", at(0, []int{1, 3, 2}, nil), at(0, []int{1, 3, 2}, nil), false},
		{"one element", at(0, []int{1, 3, 2}, nil), at(5, []int{1, 3, 2}, nil), false},
		{
			"columns side by side",
			at(0, []int{1, 3, 2}, []int{30, 10, 1}),
			at(2, []int{1, 3, 2}, []int{30, 10, 1}),
			true,
		},
		{
			"columns that meet",
			at(0, []int{1, 3, 3}, []int{30, 10, 1}),
			at(2, []int{1, 3, 3}, []int{30, 10, 1}),
			false,
		},
		{
			"every second element",
			at(0, []int{1, 3, 2}, []int{30, 10, 2}),
			at(1, []int{1, 3, 2}, []int{30, 10, 2}),
			true,
		},
		{
			"backwards",
			at(40, []int{1, 3, 2}, []int{0, -10, 1}),
			at(22, []int{1, 3, 2}, []int{30, 10, 1}),
			true,
		},
		{
			"rows between rows",
			at(0, []int{2, 3, 4}, []int{100, 20, 1}),
			at(10, []int{2, 3, 4}, []int{100, 20, 1}),
			true,
		},
	} {
		op := &FuseOp{
			Series:  []Series{{Values: c.values, Times: int64Tensor(0, 1, 2)}},
			Targets: int64Tensor(0, 1, 2),
			Out:     c.out,
		}
		err := op.Check()
		if c.ok && err != nil ||
			!c.ok && (err == nil || !strings.Contains(err.Error(), "out aliases values")) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// The same for the other tensors, and for device addresses.
	times := int64Tensor(0, 1, 2)
	out := Tensor{DType: robocache.Float32, Shape: []int{1, 3, 2}, Data: times.Data}
	op := &FuseOp{
		Series:  []Series{{Values: floats([]int{1, 3, 2}, 1, 2, 3, 4, 5, 6), Times: times}},
		Targets: int64Tensor(0, 1, 2),
		Out:     out,
	}
	if err := op.Check(); err == nil || !strings.Contains(err.Error(), "out aliases times") {
		t.Error(err)
	}
	for i, x := range op.Tensors() {
		x.Data, x.Addr = nil, uintptr(1<<20*(i+1))
	}
	if err := op.Check(); err != nil {
		t.Error(err)
	}
	op.Out.Addr = op.Targets.Addr + 8
	if err := op.Check(); err == nil || !strings.Contains(err.Error(), "out aliases targets") {
		t.Error(err)
	}
	g := &FuseGradOp{
		Series:  op.Series[0],
		Targets: op.Targets,
		Out:     Tensor{DType: robocache.Float32, Shape: []int{1, 3, 2}, Addr: 1 << 30},
		Grad:    Tensor{DType: robocache.Float32, Shape: []int{1, 3, 2}, Addr: 1<<30 + 4},
	}
	if err := g.Check(); err == nil || !strings.Contains(err.Error(), "out aliases out") {
		t.Error(err)
	}
	a := &ApplyOp{
		Parts: []Part{
			{Src: floats([]int{2, 1}, 1, 2), Out: at(0, []int{2, 1}, nil)},
			{Src: floats([]int{2, 1}, 1, 2), Out: at(1, []int{2, 1}, nil)},
		},
	}
	if err := a.Check(); err == nil || !strings.Contains(err.Error(), "out aliases out") {
		t.Error(err)
	}
}

// TestNothingWrittenOnError covers kernel.K19: an error in the last entry of the last stream leaves
// every result unchanged.
func TestNothingWrittenOnError(t *testing.T) {
	out := zeros(robocache.Float32, 2, 1, 2)
	valid := zeros(robocache.Uint8, 2, 1, 2)
	counts := zeros(robocache.Int64, 2)
	for _, x := range []*Tensor{out, valid, counts} {
		for i := range x.Data {
			x.Data[i] = 0x5A
		}
	}
	good := Series{Values: floats([]int{2, 2, 1}, 1, 2, 3, 4), Times: int64Tensor(0, 1)}
	bad := good
	bad.Name, bad.Times = "wrist", int64Tensor(0, 1, 5, 4)
	bad.Times.Shape = []int{2, 2}
	err := Reference{}.Run(
		&FuseOp{
			Series:  []Series{good, bad},
			Targets: int64Tensor(0),
			Out:     *out,
			Valid:   valid,
			Counts:  counts,
		},
	)
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["stream"] != "wrist" || e.Where["batch"] != 1 ||
		e.Where["index"] != 1 ||
		e.Op != "fuse" {
		t.Errorf("%v", err)
	}
	for _, x := range []*Tensor{out, valid, counts} {
		if !bytes.Equal(x.Data, bytes.Repeat([]byte{0x5A}, len(x.Data))) {
			t.Errorf("%v was written to", x.Shape)
		}
	}
}
