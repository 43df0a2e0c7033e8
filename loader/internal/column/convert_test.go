package column

import (
	"encoding/binary"
	"math"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/video"
)

// aligned gives n bytes at an 8-byte boundary, as tensors have.
func aligned(n int) []byte {
	b := make([]uint64, (n+7)/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), n)
}

// TestConvert checks that every stored type is converted to its type in the reference.
func TestConvert(t *testing.T) {
	le := binary.LittleEndian
	put16 := func(v uint16) []byte { b := aligned(2); le.PutUint16(b, v); return b }
	put32 := func(v uint32) []byte { b := aligned(4); le.PutUint32(b, v); return b }
	put64 := func(v uint64) []byte { b := aligned(8); le.PutUint64(b, v); return b }
	one := func(v byte) []byte { b := aligned(1); b[0] = v; return b }
	for _, c := range []struct {
		from robocache.DType
		src  []byte
		want float64
	}{
		{robocache.Float16, put16(kernel.Float32to16(-1.5)), -1.5},
		{robocache.BFloat16, put16(kernel.Float32toB16(3.25)), 3.25},
		{robocache.Float32, put32(math.Float32bits(0.1)), float64(float32(0.1))},
		{robocache.Float64, put64(math.Float64bits(0.1)), float64(float32(0.1))},
	} {
		dst := aligned(4)
		_ = Convert(dst, robocache.Float32, c.src, c.from, 1, nil)
		if got := float64(Floats32(dst)[0]); got != c.want {
			t.Errorf("%v: %v, expected %v", c.from, got, c.want)
		}
		norm := &Affine{Norm: *kernel.NewMeanStd([]float64{1}, []float64{2})}
		_ = Convert(dst, robocache.Float32, c.src, c.from, 1, norm)
		if got, want := float64(Floats32(dst)[0]), (c.want-1)/2; math.Abs(got-want) > 1e-6 {
			t.Errorf("%v normalised: %v, expected %v", c.from, got, want)
		}
	}
	for _, c := range []struct {
		from robocache.DType
		src  []byte
		want int64
	}{
		{robocache.Int8, one(0xfe), -2},
		{robocache.Uint8, one(0xfe), 254},
		{robocache.Int16, put16(0xfffd), -3},
		{robocache.Uint16, put16(0xfffd), 65533},
		{robocache.Int32, put32(0xfffffffc), -4},
		{robocache.Uint32, put32(0xfffffffc), 1<<32 - 4},
		{robocache.Int64, put64(1 << 60), 1 << 60},
	} {
		dst := aligned(8)
		_ = Convert(dst, robocache.Int64, c.src, c.from, 1, nil)
		if got := AsSlice[int64](dst)[0]; got != c.want {
			t.Errorf("%v: %d, expected %d", c.from, got, c.want)
		}
	}
}

// Frames are normalised a channel each; one pair of numbers serves all; a constant channel is 0;
// clip cuts.
func TestFramesAreNormalised(t *testing.T) {
	// 3 channels of 2 pixels.
	for _, c := range []struct {
		f    Affine
		want []float32
	}{
		{
			Affine{Norm: *kernel.NewMinMax([]float64{0, 0.6, 0.2}, []float64{1, 0.6, 0.8})},
			[]float32{-1, 1, 0, 0, -1, 1},
		},
		{
			Affine{Norm: *kernel.NewMinMax([]float64{0}, []float64{0.4}), Clip: true},
			[]float32{-1, 1, 1, 1, 0, 1},
		},
		{
			Affine{Norm: *kernel.NewMinMax([]float64{0}, []float64{0.4})},
			[]float32{-1, 4, 1, 4, 0, 3},
		},
		{
			Affine{Norm: *kernel.NewMeanStd([]float64{0, 1, 0.2}, []float64{1, 0.6, 0})},
			[]float32{0, 1, -1, 0, 0, 0},
		},
	} {
		col := &ImageColumn{
			Column: &Column{Value: Value{Norm: &c.f, Elements: 6}},
			Height: 1,
			Width:  2,
		}
		col.Spec.Pixel = video.RGBFloat32
		dst := aligned(24)
		d, err := col.beginDraft(2, 1, dst)
		if err != nil {
			t.Fatal(err)
		}
		if d.Spec.Pixel != video.RGB8 || len(d.into) != 6 {
			t.Fatalf("a draft of %v, %d bytes", d.Spec.Pixel, len(d.into))
		}
		copy(d.into, []byte{0, 255, 102, 255, 51, 204})
		if err := d.Done(nil); err != nil {
			t.Fatal(err)
		}
		for i, v := range Floats32(dst) {
			if i < 6 && math.Abs(float64(v-c.want[i])) > 1e-6 {
				t.Errorf("%v, expected %v", Floats32(dst), c.want)
				break
			}
		}
	}
}
