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
	le := binary.LittleEndian
	switch l.kind {
	case parquet.Int32:
		if x, y := le.Uint32(a), le.Uint32(b); !l.unsigned {
			return int32(x) < int32(y)
		} else {
			return x < y
		}
	case parquet.Int64:
		if x, y := le.Uint64(a), le.Uint64(b); !l.unsigned {
			return int64(x) < int64(y)
		} else {
			return x < y
		}
	case parquet.Float:
		return math.Float32frombits(le.Uint32(a)) < math.Float32frombits(le.Uint32(b))
	case parquet.Double:
		return math.Float64frombits(le.Uint64(a)) < math.Float64frombits(le.Uint64(b))
	}
	return bytes.Compare(a, b) < 0
}

// boundsOf looks at values of a fixed size, one behind the other.
func (l *Leaf) boundsOf(plain []byte) (b bounds) {
	if !l.bounded || len(plain) == 0 || l.size == 0 {
		return bounds{}
	}
	le := binary.LittleEndian
	switch l.kind {
	case parquet.Boolean: // any byte but 0 is true
		lo, hi := byte(1), byte(0)
		for _, v := range plain {
			v = min(v, 1)
			lo, hi = min(lo, v), max(hi, v)
		}
		return bounds{lo: []byte{lo}, hi: []byte{hi}, ok: true}
	case parquet.Float:
		lo, hi := float32(math.Inf(1)), float32(math.Inf(-1))
		for p := plain; len(p) >= 4; p = p[4:] {
			v := math.Float32frombits(le.Uint32(p))
			if v < lo {
				lo = v
			}
			if v > hi {
				hi = v
			}
		}
		if lo > hi { // nothing but NaN
			return bounds{}
		}
		if lo == 0 { // which of the two zeros it is does not show
			lo = float32(math.Copysign(0, -1))
		}
		if hi == 0 {
			hi = 0
		}
		return bounds{lo: le.AppendUint32(nil, math.Float32bits(lo)), hi: le.AppendUint32(nil, math.Float32bits(hi)), ok: true}
	case parquet.Double:
		lo, hi := math.Inf(1), math.Inf(-1)
		for p := plain; len(p) >= 8; p = p[8:] {
			v := math.Float64frombits(le.Uint64(p))
			if v < lo {
				lo = v
			}
			if v > hi {
				hi = v
			}
		}
		if lo > hi {
			return bounds{}
		}
		if lo == 0 {
			lo = math.Copysign(0, -1)
		}
		if hi == 0 {
			hi = 0
		}
		return bounds{lo: le.AppendUint64(nil, math.Float64bits(lo)), hi: le.AppendUint64(nil, math.Float64bits(hi)), ok: true}
	}
	return l.slowly(plain)
}

// slowly compares the values as bytes.
func (l *Leaf) slowly(plain []byte) (b bounds) {
	for p := plain; len(p) >= l.size; p = p[l.size:] {
		v := p[:l.size:l.size]
		b.merge(l, bounds{lo: v, hi: v, ok: true})
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
