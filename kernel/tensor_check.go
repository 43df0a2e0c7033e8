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

// Check proves the layout: a type of fixed size, extents from 0, a stride an axis, and a reach that
// can be counted in bytes. It looks at no memory, so that it holds for a device's tensors too.
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
	count, empty := uint64(1), false
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
	lo, hi, ok := t.span()
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

// CheckResult is Check for a tensor that is written: each element must have a place of its own. The
// rule is sufficient: taken from the smallest stride on, each stride steps over all that lies below
// it.
func (t *Tensor) CheckResult(op, name string) error {
	if err := t.Check(op, name); err != nil {
		return err
	}
	type axis struct{ stride, extent int }
	var few [4]axis // ops have no more: nothing is allocated
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
	reach := 0
	for _, a := range axes {
		if a.stride <= reach {
			return robocache.Misuse(op, robocache.Where{"tensor": name}, "out overlaps itself").
				Expected("strides that give each element its own place", fmt.Sprint(t.Stride))
		}
		reach += a.stride * (a.extent - 1)
	}
	return nil
}

// CheckHost proves that every element lies in Data. Check comes first.
func (t *Tensor) CheckHost(op, name string) error {
	if t.Len() == 0 {
		return nil
	}
	if t.Addr != 0 {
		return robocache.Misuse(op, robocache.Where{"tensor": name}, "must be on the same device").
			Expected("host memory", "a device's")
	}
	lo, hi, _ := t.span()
	if have := len(t.Data) / t.DType.Size(); lo < 0 || hi > have {
		return robocache.Misuse(op, robocache.Where{"tensor": name}, "length mismatch").
			Expected(fmt.Sprintf("%v elements with strides %v from %d inside the memory", t.Shape, t.Stride, t.Base), strconv.Itoa(have)+" elements")
	}
	return nil
}

// span is the range of element offsets that the view reaches, hi exclusive; ok is false where it
// cannot be counted.
func (t *Tensor) span() (lo, hi int, ok bool) {
	lo, hi = t.Base, t.Base
	if lo < -1<<61 || hi > 1<<61 {
		return 0, 0, false
	}
	for i, d := range t.Shape {
		if d == 0 {
			return t.Base, t.Base, true
		}
		if !widen(&lo, &hi, d, t.Step(i)) {
			return 0, 0, false
		}
	}
	return lo, hi + 1, true
}

// widen extends a range of offsets by an axis; it is false where they cannot be counted.
func widen(lo, hi *int, extent, stride int) bool {
	h, l := bits.Mul64(uint64(extent-1), uint64(max(stride, -stride)))
	switch {
	case extent == 1:
		return true
	case stride == math.MinInt || h != 0 || l > 1<<61:
		return false
	case stride < 0:
		*lo -= int(l)
	default:
		*hi += int(l)
	}
	return *lo >= -1<<61 && *hi <= 1<<61
}

// start is the address of [0, …, 0], on whichever side it lies.
func (t *Tensor) start() uintptr {
	if t.Addr != 0 {
		return t.Addr
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(t.Data))) + uintptr(t.Base*t.DType.Size())
}

// Overlaps says whether the two views may share a byte. Columns of one buffer that lie side by side
// do not.
func (t *Tensor) Overlaps(o *Tensor) bool {
	if t.Len() == 0 || o.Len() == 0 || t.Data == nil && t.Addr == 0 ||
		o.Data == nil && o.Addr == 0 {
		return false
	}
	t0, t1 := t.bytes()
	o0, o1 := o.bytes()
	if t1 <= o0 || o1 <= t0 {
		return false
	}
	// Seen modulo a pitch that is a stride of one of them, each view is an interval as wide as the
	// axes that are no multiples of the pitch.
	for _, v := range [2]*Tensor{t, o} {
		for i, d := range v.Shape {
			s := v.Step(i) * v.DType.Size()
			pitch := uintptr(max(s, -s))
			if d == 1 || pitch == 0 {
				continue
			}
			tf, tw := t.modulo(pitch)
			of, ow := o.modulo(pitch)
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

// bytes is the range of addresses that the view reaches.
func (t *Tensor) bytes() (from, to uintptr) {
	lo, hi, _ := t.span()
	size, at := t.DType.Size(), t.start()
	return at + uintptr((lo-t.Base)*size), at + uintptr((hi-t.Base)*size)
}

// modulo is the view's first byte modulo the pitch, and the width of one period of it.
func (t *Tensor) modulo(pitch uintptr) (first, width uintptr) {
	at, size := t.start(), t.DType.Size()
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

// checkForm proves type and shape of a tensor. A want of nil is any shape of that rank's extents;
// name is what errors call it.
func checkForm(op, name string, t *Tensor, want []int, types ...robocache.DType) error {
	where := robocache.Where{"tensor": name}
	known := false
	for _, d := range types {
		known = known || t.DType == d
	}
	if !known {
		return robocache.Misuse(op, where, "unsupported dtype").
			Expected(join(types), t.DType.String())
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

func join(types []robocache.DType) string {
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
