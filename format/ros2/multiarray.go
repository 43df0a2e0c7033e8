package ros2

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

func multiArrayElement(short string) (robocache.DType, bool) {
	name, ok := strings.CutPrefix(short, "std_msgs/")
	if !ok {
		return 0, false
	}
	if name, ok = strings.CutSuffix(name, "MultiArray"); !ok {
		return 0, false
	}
	if name == "Byte" {
		return robocache.Uint8, true
	}
	for d, n := range multiArrays {
		if n == name {
			return d, true
		}
	}
	return 0, false
}

// multiArray decodes std_msgs/…MultiArray. The elements have the shape in the message, or one
// dimension if that shape does not fit. If the lengths of messages differ, the stream is ragged.
type multiArray struct {
	onlyType
	dtype robocache.DType
	arrayLayout
}

type arrayLayout struct {
	Shape  []int `json:"shape,omitempty"`
	Length int   `json:"length"` // unseen, varying, or the length of every message
}

func newMultiArray(name string, d robocache.DType) *multiArray {
	return &multiArray{onlyType(name), d, arrayLayout{Length: unseen}}
}

func (a *multiArray) learnedState() any { return &a.arrayLayout }

func (a *multiArray) restoreState(bool) error {
	n := 1
	for _, size := range a.Shape {
		if size < 0 || size > maxFixedBytes || n*size > maxFixedBytes {
			return layoutError("shape", "a small shape", fmt.Sprint(a.Shape))
		}
		n *= size
	}
	if a.Length > 0 && n != a.Length {
		return layoutError("shape", strconv.Itoa(a.Length)+" elements", fmt.Sprint(a.Shape))
	}
	return nil
}

const maxDims = 32

// parseArray returns the elements of a message. If shape is not nil, it also stores the dimensions.
func (a *multiArray) parseArray(msg []byte, shape *[]int) (data []byte, err error) {
	c := newCursor(msg)
	dims := c.count(12)
	var sizes [maxDims]int
	for k := range dims {
		c.str()
		n := c.u32()
		c.u32() // the stride is often zero or wrong, and rows are always packed
		if k < maxDims {
			sizes[k] = int(n)
		}
	}
	offset := c.u32()
	size := a.dtype.Size()
	data = c.elements(c.count(size), size)
	if c.short {
		return nil, c.finish("data")
	}
	n := len(data) / size
	product, fits := 1, dims > 0 && dims <= maxDims
	for _, s := range sizes[:min(dims, maxDims)] {
		if s > n || product*s > n && s > 0 {
			fits = false
			break
		}
		product *= s
	}
	if fits && uint64(offset)+uint64(product) == uint64(n) && product > 0 {
		data = data[int(offset)*size:] // elements before data_offset are padding
		if shape != nil {
			*shape = slices.Clone(sizes[:dims])
		}
	} else if shape != nil {
		*shape = []int{n}
	}
	return data, nil
}

func (a *multiArray) scanMessage(msg []byte, row rowFunc) error {
	var shape []int
	data, err := a.parseArray(msg, &shape)
	if err != nil {
		return err
	}
	switch n := len(data) / a.dtype.Size(); {
	case a.Length == unseen:
		a.Length, a.Shape = n, shape
	case a.Length != n:
		a.Length = varying
	case !slices.Equal(shape, a.Shape):
		a.Shape = []int{n}
	}
	return nil
}

func (a *multiArray) streamLayout(key string) ([]Field, []string) {
	f := robocache.Feature{Kind: robocache.KindNumeric, DType: a.dtype, Shape: a.Shape}
	if a.Length <= 0 {
		f.Shape = []int{-1}
	}
	return []Field{{Feature: f, Partial: a.Length > 0}}, []string{key}
}

func (a *multiArray) decodeRow(msg []byte, _ int, fields []int, to rows) error {
	data, err := a.parseArray(msg, nil)
	if err != nil {
		return err
	}
	for j := range fields {
		dst := to.rowOf(j, to.rowWidth(j))
		ok := len(data) == len(dst)
		if ok {
			copy(dst, data)
		} else {
			clear(dst)
		}
		to.setValid(j, ok)
	}
	return nil
}

func (a *multiArray) appendRagged(msg []byte, _, _ int, dst []byte) ([]byte, int, error) {
	data, err := a.parseArray(msg, nil)
	if err != nil {
		return dst, 0, err
	}
	return append(dst, data...), len(data) / a.dtype.Size(), nil
}
