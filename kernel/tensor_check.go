package kernel

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// Check rejects a layout that is invalid: a type of variable size, a negative extent, a missing
// stride, or a size beyond what an int can count in bytes. It reads no memory and works for tensors
// of a device too.
func (t *Tensor) Check(op, name string) error {
	bad := func(class error, msg, want, got string) error {
		return robocache.NewError(class, op, robocache.Where{"tensor": name}, "%s", msg).
			Expected(want, got)
	}
	size := t.DType.Size()
	if size == 0 {
		return bad(
			robocache.ErrUnsupported,
			"unsupported dtype",
			"a type of fixed size",
			t.DType.String(),
		)
	}
	if t.Stride != nil && len(t.Stride) != len(t.Shape) {
		return bad(
			robocache.ErrMisuse,
			"length mismatch",
			strconv.Itoa(len(t.Shape))+" strides",
			strconv.Itoa(len(t.Stride)),
		)
	}
	count := uint64(1)
	empty := false
	for _, d := range t.Shape {
		if d < 0 {
			return bad(robocache.ErrMisuse, "negative extent", "extents ≥ 0", fmt.Sprint(t.Shape))
		}
		empty = empty || d == 0
	}
	if empty {
		return nil
	}
	for _, d := range t.Shape {
		h, l := bits.Mul64(count, uint64(d))
		if h != 0 || l > math.MaxInt/uint64(size) {
			return bad(
				robocache.ErrResourceLimit,
				"more elements than can be counted",
				"at most 2^63 bytes",
				fmt.Sprint(t.Shape),
			)
		}
		count = l
	}
	lo, hi, ok := t.elementRange()
	if !ok || hi > math.MaxInt/size || lo < math.MinInt/size {
		return bad(
			robocache.ErrMisuse,
			"strides reach beyond any memory",
			"offsets of less than 2^63 bytes",
			fmt.Sprint(t.Stride),
		)
	}
	return nil
}

// CheckResult is Check for a tensor that is written: no two elements may share memory. The test is
// sufficient, not necessary. With axes sorted by stride, each stride must be larger than the extent
// of all smaller axes.
func (t *Tensor) CheckResult(op, name string) error {
	if err := t.Check(op, name); err != nil {
		return err
	}
	type axis struct{ stride, extent int }
	var few [4]axis // operations have at most 4 axes, so nothing is allocated
	axes := few[:0]
	for i, d := range t.Shape {
		if d == 0 {
			return nil
		}
		if d > 1 {
			s := t.Step(i)
			axes = append(axes, axis{max(s, -s), d})
		}
	}
	slices.SortFunc(axes, func(a, b axis) int { return cmp.Compare(a.stride, b.stride) })
	reach := 0 // largest offset within the smaller axes
	for _, a := range axes {
		if a.stride <= reach {
			return robocache.Misuse(op, robocache.Where{"tensor": name}, "out overlaps itself").
				Expected("strides that give each element its own place", fmt.Sprint(t.Stride))
		}
		reach += a.stride * (a.extent - 1)
	}
	return nil
}

// CheckHost rejects a tensor with elements outside Data. Caller must have called Check.
func (t *Tensor) CheckHost(op, name string) error {
	if t.Len() == 0 {
		return nil
	}
	if t.Addr != 0 {
		return robocache.Misuse(op, robocache.Where{"tensor": name}, "must be on the same device").
			Expected("host memory", "a device's")
	}
	lo, hi, _ := t.elementRange()
	if have := len(t.Data) / t.DType.Size(); lo < 0 || hi > have {
		return robocache.Misuse(op, robocache.Where{"tensor": name}, "length mismatch").
			Expected(
				fmt.Sprintf(
					"%v elements with strides %v from %d inside the memory",
					t.Shape,
					t.Stride,
					t.Base,
				),
				strconv.Itoa(have)+" elements",
			)
	}
	return nil
}

// maxOffset bounds element offsets. The sum of two bounded offsets fits an int.
const maxOffset = 1 << 61

// elementRange returns the range of element offsets in the view, hi exclusive. ok is false if the
// range overflows.
func (t *Tensor) elementRange() (lo, hi int, ok bool) {
	lo, hi = t.Base, t.Base
	if lo < -maxOffset || hi > maxOffset {
		return 0, 0, false
	}
	for i, d := range t.Shape {
		if d == 0 {
			return t.Base, t.Base, true
		}
		if !widenRange(&lo, &hi, d, t.Step(i)) {
			return 0, 0, false
		}
	}
	return lo, hi + 1, true
}

// widenRange extends a range of offsets by an axis. It returns false if the range overflows.
func widenRange(lo, hi *int, extent, stride int) bool {
	// The product of the extent and the stride has 128 bits: overflow and distance.
	overflow, distance := bits.Mul64(uint64(extent-1), uint64(max(stride, -stride)))
	switch {
	case extent == 1:
		return true
	case stride == math.MinInt || overflow != 0 || distance > maxOffset:
		return false
	case stride < 0:
		*lo -= int(distance)
	default:
		*hi += int(distance)
	}
	return *lo >= -maxOffset && *hi <= maxOffset
}

// baseAddress returns the address of [0, …, 0], in host or device memory.
func (t *Tensor) baseAddress() uintptr {
	if t.Addr != 0 {
		return t.Addr
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(t.Data))) + uintptr(t.Base*t.DType.Size())
}

// isEmpty reports whether the tensor has no elements or no memory.
func (t *Tensor) isEmpty() bool { return t.Len() == 0 || t.Data == nil && t.Addr == 0 }

// Overlaps reports whether the two views may share a byte. Disjoint columns of one buffer do not
// overlap.
func (t *Tensor) Overlaps(o *Tensor) bool {
	if t.isEmpty() || o.isEmpty() {
		return false
	}
	t0, t1 := t.addressRange()
	o0, o1 := o.addressRange()
	if t1 <= o0 || o1 <= t0 {
		return false
	}
	// Take addresses modulo a pitch, which is a stride of one of the views. Each view is then an
	// interval, as wide as its axes that are not multiples of the pitch.
	for _, v := range [2]*Tensor{t, o} {
		for i, d := range v.Shape {
			s := v.Step(i) * v.DType.Size()
			pitch := uintptr(max(s, -s))
			if d == 1 || pitch == 0 {
				continue
			}
			tf, tw := t.pitchInterval(pitch)
			of, ow := o.pitchInterval(pitch)
			if tw >= pitch || ow >= pitch {
				continue
			}
			if ahead := (of + pitch - tf) % pitch; ahead >= tw && ahead+ow <= pitch {
				return false
			}
		}
	}
	return true
}

// addressRange returns the range of addresses in the view.
func (t *Tensor) addressRange() (from, to uintptr) {
	lo, hi, _ := t.elementRange()
	size := t.DType.Size()
	at := t.baseAddress()
	return at + uintptr((lo-t.Base)*size), at + uintptr((hi-t.Base)*size)
}

// pitchInterval returns the interval of the view's bytes modulo the pitch, as its first byte and its
// width. Axes whose stride is a multiple of the pitch do not widen it.
func (t *Tensor) pitchInterval(pitch uintptr) (first, width uintptr) {
	at := t.baseAddress()
	size := t.DType.Size()
	width = uintptr(size)
	for i, d := range t.Shape {
		s := t.Step(i) * size
		if d == 1 || s%int(pitch) == 0 {
			continue
		}
		reach := s * (d - 1)
		width += uintptr(max(reach, -reach))
		if reach < 0 {
			at += uintptr(reach)
		}
	}
	return at % pitch, width
}

// checkForm rejects a tensor whose type is not in types or whose shape is not want. name is the
// tensor's name in errors.
func checkForm(op, name string, t *Tensor, want []int, types ...robocache.DType) error {
	where := robocache.Where{"tensor": name}
	known := false
	for _, d := range types {
		known = known || t.DType == d
	}
	if !known {
		return robocache.Misuse(op, where, "unsupported dtype").
			Expected(joinTypes(types), t.DType.String())
	}
	same := len(t.Shape) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = t.Shape[i] == want[i]
	}
	if !same {
		return robocache.Misuse(op, where, "%s has wrong shape", name).
			Expected(fmt.Sprint(want), fmt.Sprint(t.Shape))
	}
	return nil
}

// joinTypes returns the names of the types as "a, b or c", for errors.
func joinTypes(types []robocache.DType) string {
	s := ""
	for i, d := range types {
		switch {
		case i == 0:
		case i == len(types)-1:
			s += " or "
		default:
			s += ", "
		}
		s += d.String()
	}
	return s
}
