package pqw

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"
)

// Values collects the values of a column, with their levels, one by one: what has no fixed shape, or a dictionary.
type Values struct {
	leaf     *Leaf
	rep, def []byte
	data     []byte // those that are not null, byte arrays without their lengths
	ends     []int  // of each in data
}

// NewValues begins an empty column.
func (l *Leaf) NewValues() *Values { return &Values{leaf: l} }

// Add adds a value; one of a definition level below the greatest is null.
func (v *Values) Add(value []byte, rep, def int) {
	v.rep, v.def = append(v.rep, byte(rep)), append(v.def, byte(def))
	if def == int(v.leaf.def) {
		v.data = append(v.data, value...)
		v.ends = append(v.ends, len(v.data))
	}
}

// Null adds a value that is not there.
func (v *Values) Null(rep, def int) { v.Add(nil, rep, def) }

func (v *Values) at(i int) []byte {
	if i == 0 {
		return v.data[:v.ends[0]]
	}
	return v.data[v.ends[i-1]:v.ends[i]]
}

// Encode makes the chunk, and empties the collector.
func (v *Values) Encode() (*Chunk, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	l := v.leaf
	c := newChunk(l)
	numbers, err := v.numbered(c, s)
	if err != nil {
		return nil, err
	}
	for from, value := 0, 0; from < len(v.rep); {
		p := page{encoding: format.Plain}
		to, first := from, value
		var size int
		for to < len(v.rep) && (size < PageBytes || v.rep[to] != 0) {
			if v.rep[to] == 0 {
				p.rows++
			}
			if v.def[to] == l.def {
				size += len(v.at(value)) + 4
				value++
			}
			to++
		}
		p.rep, p.def, p.values, p.nulls = v.rep[from:to], v.def[from:to], to-from, to-from-(value-first)
		var body []byte
		switch {
		case numbers != nil:
			p.encoding = format.RLEDictionary
			if body, err = new(rle.DictionaryEncoding).EncodeInt32(nil, numbers[first:value]); err != nil {
				return nil, err
			}
		case value == first:
		case l.kind == parquet.Boolean:
			body = packBits(v.data[first:value])
		case l.size > 0:
			body = v.data[first*l.size : value*l.size]
		default:
			for i := first; i < value; i++ {
				b := v.at(i)
				body = append(binary.LittleEndian.AppendUint32(body, uint32(len(b))), b...)
			}
		}
		p.body = [][]byte{slices.Clone(body)}
		p.bounds = v.bounds(first, value)
		if l.size == 0 && value > first {
			p.plain = int64(v.ends[value-1])
			if first > 0 {
				p.plain -= int64(v.ends[first-1])
			}
		}
		if err := c.add(&p, s); err != nil {
			return nil, err
		}
		from = to
	}
	*v = Values{leaf: l, rep: v.rep[:0], def: v.def[:0], data: v.data[:0], ends: v.ends[:0]}
	return c.end(), nil
}

// numbered writes the dictionary and gives the numbers of the values in it; nil where the column has none, or too large a one.
func (v *Values) numbered(c *Chunk, s *scratch) ([]int32, error) {
	if !v.leaf.dictionary || len(v.ends) == 0 {
		return nil, nil
	}
	seen := map[string]int32{}
	numbers := make([]int32, len(v.ends))
	var plain []byte
	for i := range v.ends {
		b := v.at(i)
		if i > 0 && bytes.Equal(b, v.at(i-1)) {
			numbers[i] = numbers[i-1]
			continue
		}
		n, ok := seen[string(b)]
		if !ok {
			if len(plain)+len(b) > PageBytes {
				return nil, nil
			}
			n = int32(len(seen))
			seen[string(b)] = n
			if v.leaf.size == 0 {
				plain = binary.LittleEndian.AppendUint32(plain, uint32(len(b)))
			}
			plain = append(plain, b...)
		}
		numbers[i] = n
	}
	return numbers, c.dictionary(len(seen), plain, s)
}

func (v *Values) bounds(first, to int) (b bounds) {
	l := v.leaf
	if l.size > 0 {
		return l.boundsOf(v.data[first*l.size : to*l.size])
	}
	for i := first; i < to; i++ {
		b.merge(l, bounds{lo: v.at(i), hi: v.at(i), ok: true})
	}
	if !b.ok || len(b.lo) > shortBound || len(b.hi) > shortBound {
		return bounds{}
	}
	b.lo, b.hi = append([]byte{}, b.lo...), append([]byte{}, b.hi...)
	return b
}
