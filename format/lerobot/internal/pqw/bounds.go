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
func (l *Leaf) key(b []byte) (k uint64, ok bool) {
	const sign = 1 << 63
	le := binary.LittleEndian
	switch l.kind {
	case parquet.Boolean: // any byte but 0 is true
		return uint64(min(b[0], 1)), true
	case parquet.Int32:
		if k = uint64(le.Uint32(b)); !l.unsigned {
			k = uint64(int32(k)) ^ sign
		}
		return k, true
	case parquet.Int64:
		if k = le.Uint64(b); !l.unsigned {
			k ^= sign
		}
		return k, true
	case parquet.Float:
		k = math.Float64bits(float64(math.Float32frombits(le.Uint32(b))))
	default:
		k = le.Uint64(b)
	}
	if k&(sign-1) > 0x7ff<<52 {
		return 0, false
	}
	if k&sign != 0 {
		return ^k, true
	}
	return k | sign, true
}

// boundsOf looks at values of a fixed size, one behind the other.
func (l *Leaf) boundsOf(plain []byte) (b bounds) {
	if !l.bounded {
		return b
	}
	var lo, hi uint64
	from, to := -1, -1
	for i := 0; i < len(plain); i += l.size {
		k, ok := l.key(plain[i:])
		if !ok {
			continue
		}
		if from < 0 || k < lo {
			lo, from = k, i
		}
		if to < 0 || k > hi {
			hi, to = k, i
		}
	}
	if from < 0 { // none, or nothing but NaN
		return b
	}
	b = bounds{lo: bytes.Clone(plain[from : from+l.size]), hi: bytes.Clone(plain[to : to+l.size]), ok: true}
	switch l.kind {
	case parquet.Boolean:
		b.lo[0], b.hi[0] = byte(lo), byte(hi)
	case parquet.Float, parquet.Double: // which of the two zeros a bound is does not show
		const zero = 1 << 63
		if lo == zero {
			b.lo[l.size-1] = 0x80
		}
		if hi == zero-1 {
			b.hi[l.size-1] = 0
		}
	}
	return b
}

// bounds are those of values first to to; where they have numbers in a dictionary, each is looked at once.
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

// index is the chunk's column index; nil where some page has values and no bounds: the index has no way to say so.
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
