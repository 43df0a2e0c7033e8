package pqw

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// bounds are the least and the greatest value, as PLAIN writes them.
type bounds struct {
	lo, hi []byte
	ok     bool
	null   bool // a page of nulls alone
}

// shortBound is how long a text may be to stand as a bound.
const shortBound = 64

func (b *bounds) merge(l *Leaf, o bounds) {
	switch {
	case !o.ok:
	case !b.ok:
		*b = o
	default:
		if l.less(o.lo, b.lo) {
			b.lo = o.lo
		}
		if l.less(b.hi, o.hi) {
			b.hi = o.hi
		}
	}
}

// less compares two values in the order that the column's type has in Parquet.
func (l *Leaf) less(a, b []byte) bool {
	if l.size == 0 {
		return bytes.Compare(a, b) < 0
	}
	x, _ := l.key(a)
	y, _ := l.key(b)
	return x < y
}

// key is a number that is ordered as the column's type is, −0 below +0; NaN has none.
func (l *Leaf) key(b []byte) (k int64, ok bool) {
	le := binary.LittleEndian
	switch l.kind {
	case parquet.Boolean: // any byte but 0 is true
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

// floatKey orders floats by their bits: those of negative ones are turned round. What lies above
// infinity is NaN.
func floatKey(bits, inf int64) (k int64, ok bool) {
	return bits ^ bits>>63&math.MaxInt64, bits&math.MaxInt64 <= inf
}

// boundsOf looks at values of a fixed size, one behind the other.
func (l *Leaf) boundsOf(plain []byte) (b bounds) {
	if !l.bounded {
		return b
	}
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	from, to := -1, -1
	if l.kind == parquet.Float { // nearly all that is written
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
			k, ok := l.key(plain[i:])
			if ok && (k < lo || from < 0) {
				lo, from = k, i
			}
			if ok && (k > hi || to < 0) {
				hi, to = k, i
			}
		}
	}
	if from < 0 { // none, or nothing but NaN
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
	case parquet.Float, parquet.Double: // which of the two zeros a bound is does not show
		if lo == 0 {
			b.lo[l.size-1] = 0x80
		}
		if hi < 0 && b.hi[l.size-1] == 0x80 && len(bytes.Trim(b.hi[:l.size-1], "\x00")) == 0 {
			b.hi[l.size-1] = 0
		}
	}
	return b
}

// bounds are those of values first to to; where they have numbers in a dictionary, each is looked
// at once.
func (v *Values) bounds(first, to int, numbers []int32) (b bounds) {
	l := v.leaf
	if l.size > 0 && numbers == nil {
		return l.boundsOf(v.plain[first*l.size : to*l.size])
	}
	for i := first; i < to; i++ {
		if i > first && numbers != nil && numbers[i] == numbers[i-1] {
			continue
		}
		if l.size > 0 {
			b.merge(l, l.boundsOf(v.at(i)))
		} else {
			b.merge(l, bounds{lo: v.items[i], hi: v.items[i], ok: true})
		}
	}
	if l.size == 0 && (len(b.lo) > shortBound || len(b.hi) > shortBound) {
		return bounds{}
	}
	b.lo, b.hi = bytes.Clone(b.lo), bytes.Clone(b.hi)
	return b
}

// index is the chunk's column index; nil where some page has values and no bounds: the index has no
// way to say so.
func (c *Chunk) index() *format.ColumnIndex {
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
			up = up && !c.leaf.less(b.lo, last.lo) && !c.leaf.less(b.hi, last.hi)
			down = down && !c.leaf.less(last.lo, b.lo) && !c.leaf.less(last.hi, b.hi)
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
