package conform

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

var le = binary.LittleEndian

// Poison is the value of every byte that a back end must overwrite, and of the bytes next to the
// result.
const Poison = 0xA5

// Filled returns a tensor in C order whose bytes are Poison.
func Filled(d robocache.DType, shape ...int) *kernel.Tensor {
	return blankTensor(&tensorLayout{DType: d, Shape: shape})
}

// blankTensor returns a tensor with the given layout whose bytes are Poison. A tensor that is too
// large for memory has no data; its case expects an error.
func blankTensor(a *tensorLayout) *kernel.Tensor {
	t := &kernel.Tensor{DType: a.DType, Shape: a.Shape, Stride: a.Stride, Base: a.Base}
	size := 1 + a.Base
	for i, d := range a.Shape {
		if d < 0 || d > 1<<30 {
			return t
		}
		if s := t.Step(i); s > 0 {
			size += s * max(d-1, 0)
		}
	}
	if size <= 1<<28 {
		t.Data = make([]byte, a.Skip+size*a.DType.Size())[a.Skip:]
		Fill(t)
	}
	return t
}

// Fill sets all bytes of a tensor's memory to Poison.
func Fill(t *kernel.Tensor) {
	for i := range t.Data {
		t.Data[i] = Poison
	}
}

// Int64s returns a tensor of the numbers.
func Int64s(v ...int64) *kernel.Tensor {
	t := &kernel.Tensor{DType: robocache.Int64, Shape: []int{len(v)}}
	for _, x := range v {
		t.Data = le.AppendUint64(t.Data, uint64(x))
	}
	return t
}

// Put writes a number at byte offset o of the tensor's memory. Floating-point types store x;
// integer types store bits.
func Put(t *kernel.Tensor, o int, x float64, bits uint64) {
	d := t.Data[o:]
	switch t.DType {
	case robocache.Float64:
		le.PutUint64(d, math.Float64bits(x))
	case robocache.Float32:
		le.PutUint32(d, math.Float32bits(float32(x)))
	case robocache.Float16:
		le.PutUint16(d, kernel.Float64to16(x))
	case robocache.BFloat16:
		le.PutUint16(d, kernel.Float64toB16(x))
	case robocache.Bool:
		d[0] = byte(bits & 1)
	default:
		for i := range t.DType.Size() {
			d[i] = byte(bits >> (8 * i))
		}
	}
}

// Word returns the bits of an element that is stored in little-endian order.
func Word(b []byte) (u uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		u = u<<8 | uint64(b[i])
	}
	return u
}

// Near reports whether two elements are equal: the same bits, both NaN, or apart by at most slack
// or one step of the type. If slack is 0, other bits are never equal.
func Near(a, b uint64, dt robocache.DType, slack float64) bool {
	if a == b || IsNaN(a, dt) && IsNaN(b, dt) {
		return true
	}
	if slack == 0 || !dt.Float() || IsNaN(a, dt) || IsNaN(b, dt) {
		return false
	}
	return math.Abs(decodeFloat(a, dt)-decodeFloat(b, dt)) <= slack || stepsApart(a, b, dt) <= 1
}

// decodeFloat returns the value of a floating-point element with the bits u.
func decodeFloat(u uint64, dt robocache.DType) float64 {
	switch dt {
	case robocache.Float64:
		return math.Float64frombits(u)
	case robocache.Float16:
		return float64(kernel.Float16to32(uint16(u)))
	case robocache.BFloat16:
		return float64(kernel.BFloat16to32(uint16(u)))
	}
	return float64(math.Float32frombits(uint32(u)))
}

// IsNaN reports whether the bits of an element are a NaN.
func IsNaN(
	u uint64,
	dt robocache.DType,
) bool {
	return dt.Float() && math.IsNaN(decodeFloat(u, dt))
}

// stepsApart returns the distance in steps of the type. Float64 results are compared in float32
// steps, because float64 is the computing type. Differences near zero that the float64 computation
// does not resolve count as 0.
func stepsApart(a, b uint64, dt robocache.DType) int64 {
	if dt == robocache.Float64 {
		a = uint64(math.Float32bits(float32(decodeFloat(a, dt))))
		b = uint64(math.Float32bits(float32(decodeFloat(b, dt))))
		dt = robocache.Float32
	}
	if dt == robocache.Float32 && math.Abs(decodeFloat(a, dt)-decodeFloat(b, dt)) < 0x1p-40 {
		return 0
	}
	width := 8 * dt.Size()
	line := func(u uint64) int64 { // number of steps from 0
		if u>>(width-1) != 0 {
			return -int64(u &^ (1 << (width - 1)))
		}
		return int64(u)
	}
	d := line(a) - line(b)
	return max(d, -d)
}

// expectElements compares a result with hexadecimal bits in C order, and checks that no other byte
// of its memory was written. If near is not nil, it reports whether other bits are accepted too. If
// t is nil, there is nothing to compare.
func expectElements(
	name string,
	t *kernel.Tensor,
	want []string,
	near func(index []int, want, got uint64) bool,
) error {
	if t == nil {
		return nil
	}
	if t.Len() != len(want) {
		return fmt.Errorf("%s: %v, want %d elements", name, t.Shape, len(want))
	}
	size := t.DType.Size()
	i := 0
	written := make([]bool, len(t.Data)/size)
	if err := t.Elements(func(o int, index []int) error {
		written[o/size] = true
		w := want[i]
		got := Word(t.Data[o : o+size])
		i++
		u, bad := strconv.ParseUint(w, 16, 64) // "nan" is no number
		if bad == nil && u == got || w == "nan" && IsNaN(got, t.DType) {
			return nil
		}
		if bad != nil || near == nil || !near(index, u, got) {
			return fmt.Errorf("%s %v: %0*x, want %s", name, index, 2*size, got, w)
		}
		return nil
	}); err != nil {
		return err
	}
	for i, b := range t.Data[:len(written)*size] {
		if !written[i/size] && b != Poison {
			return fmt.Errorf("%s: byte %d beside the result was written to", name, i)
		}
	}
	return nil
}

// hexWords formats numbers for expectElements.
func hexWords[T int | int32 | int64](x []T, digits int) []string {
	out := make([]string, len(x))
	for i, v := range x {
		out[i] = fmt.Sprintf("%0*x", digits, uint64(v)&(1<<(4*digits-1)<<1-1))
	}
	return out
}

// checkDigest compares the SHA-256 of results.
func checkDigest(want string, parts ...[]byte) error {
	if got := fmt.Sprintf("%x", sha256.Sum256(slices.Concat(parts...))); got != want {
		return fmt.Errorf("SHA-256 %s, want %s", got, want)
	}
	return nil
}
