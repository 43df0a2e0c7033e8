package pqw

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// bounds are the smallest and the largest value in PLAIN encoding.
type bounds struct {
	lo, hi []byte
	ok     bool
	null   bool // the page has only nulls
}

// shortBound is the maximum length of a text that is used as a bound.
const shortBound = 64

func (b *bounds) mergeBounds(l *Leaf, o bounds) {
	switch {
	case !o.ok:
	case !b.ok:
		*b = o
	default:
		if l.lessThan(o.lo, b.lo) {
			b.lo = o.lo
		}
		if l.lessThan(b.hi, o.hi) {
			b.hi = o.hi
		}
	}
}

// lessThan compares two values in the Parquet order of the column's type.
func (l *Leaf) lessThan(a, b []byte) bool {
	if l.size == 0 {
		return bytes.Compare(a, b) < 0
	}
	x, _ := l.orderKey(a)
	y, _ := l.orderKey(b)
	return x < y
}

// orderKey returns an integer with the same order as the column's type. −0 is below +0. ok is false
// for NaN.
func (l *Leaf) orderKey(b []byte) (k int64, ok bool) {
	le := binary.LittleEndian
	switch l.kind {
	case parquet.Boolean: // every byte except 0 is true
		return int64(min(b[0], 1)), true
	case parquet.Int32:
		if l.unsigned {
			return int64(le.Uint32(b)), true
		}
		return int64(int32(le.Uint32(b))), true
	case parquet.Int64:
		if k = int64(le.Uint64(b)); l.unsigned {
			k ^= math.MinInt64
		}
		return k, true
	case parquet.Float:
		return floatKey(int64(int32(le.Uint32(b)))<<32, 0xff<<55)
	}
	return floatKey(int64(le.Uint64(b)), 0x7ff<<52)
}

// floatKey returns a key that orders floats by their bits. The bits of negative numbers are
// inverted. Values above infinity are NaN.
func floatKey(bits, inf int64) (k int64, ok bool) {
	return bits ^ bits>>63&math.MaxInt64, bits&math.MaxInt64 <= inf
}

// boundsOf returns the bounds of consecutive values of a fixed size.
func (l *Leaf) boundsOf(plain []byte) (b bounds) {
	if !l.bounded {
		return b
	}
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	from, to := -1, -1
	if l.kind == parquet.Float { // fast path: most values are float32
		for i := 0; i+4 <= len(plain); i += 4 {
			k, ok := floatKey(int64(int32(binary.LittleEndian.Uint32(plain[i:])))<<32, 0xff<<55)
			if ok && k < lo {
				lo, from = k, i
			}
			if ok && k > hi {
				hi, to = k, i
			}
		}
	} else {
		for i := 0; i < len(plain); i += l.size {
			k, ok := l.orderKey(plain[i:])
			if ok && (k < lo || from < 0) {
				lo, from = k, i
			}
			if ok && (k > hi || to < 0) {
				hi, to = k, i
			}
		}
	}
	if from < 0 { // no values, or only NaN
		return b
	}
	b = bounds{
		lo: bytes.Clone(plain[from : from+l.size]),
		hi: bytes.Clone(plain[to : to+l.size]),
		ok: true,
	}
	switch l.kind {
	case parquet.Boolean:
		b.lo[0], b.hi[0] = byte(lo), byte(hi)
	// the bound must not depend on which of the two zeros occurs
	case parquet.Float, parquet.Double:
		if lo == 0 {
			b.lo[l.size-1] = 0x80
		}
		if hi < 0 && b.hi[l.size-1] == 0x80 && len(bytes.Trim(b.hi[:l.size-1], "\x00")) == 0 {
			b.hi[l.size-1] = 0
		}
	}
	return b
}

// boundsBetween returns the bounds of values first to to. If the values have dictionary numbers,
// repeated numbers are compared once.
func (v *Values) boundsBetween(first, to int, numbers []int32) (b bounds) {
	l := v.leaf
	if l.size > 0 && numbers == nil {
		return l.boundsOf(v.plain[first*l.size : to*l.size])
	}
	for i := first; i < to; i++ {
		if i > first && numbers != nil && numbers[i] == numbers[i-1] {
			continue
		}
		if l.size > 0 {
			b.mergeBounds(l, l.boundsOf(v.valueAt(i)))
		} else {
			b.mergeBounds(l, bounds{lo: v.items[i], hi: v.items[i], ok: true})
		}
	}
	if l.size == 0 && (len(b.lo) > shortBound || len(b.hi) > shortBound) {
		return bounds{}
	}
	b.lo, b.hi = bytes.Clone(b.lo), bytes.Clone(b.hi)
	return b
}

// columnIndex returns the column index of the chunk. It returns nil if a page has values but no
// bounds, because the index cannot represent that.
func (c *Chunk) columnIndex() *format.ColumnIndex {
	x := &format.ColumnIndex{NullCounts: c.nulls}
	up, down := true, true
	var last *bounds
	for i := range c.bounds {
		b := &c.bounds[i]
		if !b.ok && !b.null {
			return nil
		}
		x.NullPages = append(x.NullPages, b.null)
		x.MinValues, x.MaxValues = append(x.MinValues, b.lo), append(x.MaxValues, b.hi)
		if b.null {
			continue
		}
		if last != nil {
			up = up && !c.leaf.lessThan(b.lo, last.lo) && !c.leaf.lessThan(b.hi, last.hi)
			down = down && !c.leaf.lessThan(last.lo, b.lo) && !c.leaf.lessThan(last.hi, b.hi)
		}
		last = b
	}
	switch {
	case up:
		x.BoundaryOrder = format.Ascending
	case down:
		x.BoundaryOrder = format.Descending
	}
	return x
}
