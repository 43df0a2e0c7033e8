package pqw

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Values collects the values of a column of one row group, with their levels.
type Values struct {
	leaf     *Leaf
	rep, def []byte // levels of every value and null
	// non-null values of a fixed size in PLAIN encoding; booleans take a byte each
	plain  []byte
	items  [][]byte // non-null values of byte array columns
	number [8]byte
}

// NewValues returns an empty column.
func (l *Leaf) NewValues() *Values { return &Values{leaf: l} }

// Add appends a value. The value is null if def is below the maximum definition level. A byte array
// is not copied.
func (v *Values) Add(value []byte, rep, def int) {
	v.rep, v.def = append(v.rep, byte(rep)), append(v.def, byte(def))
	switch {
	case def < int(v.leaf.def):
	case v.leaf.size > 0:
		v.plain = append(v.plain, value...)
	default:
		v.items = append(v.items, value)
	}
}

// Null appends a null.
func (v *Values) Null(rep, def int) { v.Add(nil, rep, def) }

// Int64 appends an integer.
func (v *Values) Int64(n int64, rep, def int) {
	binary.LittleEndian.PutUint64(v.number[:], uint64(n))
	v.Add(v.number[:], rep, def)
}

// Float64 appends a number.
func (v *Values) Float64(f float64, rep, def int) { v.Int64(int64(math.Float64bits(f)), rep, def) }

// Text appends a text.
func (v *Values) Text(s string, rep, def int) { v.Add([]byte(s), rep, def) }

// Nested appends a row of nested lists of fixed lengths without nulls. put is called for each value
// and appends it.
func (v *Values) Nested(dims []int, put func(i, rep, def int)) {
	pattern := Pattern(dims...)
	if len(pattern) == 0 {
		v.Null(0, 1)
	}
	for i, rep := range pattern {
		put(i, int(rep), 1+2*len(dims))
	}
}

// Pattern returns the repetition levels of one row of nested lists of fixed lengths without nulls,
// one level per value. Without dims, the row is a scalar.
func Pattern(dims ...int) []byte {
	n := 1
	for _, d := range dims {
		n *= d
	}
	out := make([]byte, n)
	for i := 1; i < n; i++ {
		// The level is the outermost list that continues at this value.
		rep := len(dims)
		for inner, d := 1, len(dims)-1; d > 0; d-- {
			inner *= dims[d]
			if i%inner != 0 {
				break
			}
			rep--
		}
		out[i] = byte(rep)
	}
	return out
}

// Rows encodes rows without nulls. Each row has as many values as pattern has levels.
func (l *Leaf) Rows(plain []byte, pattern []byte) (*Chunk, error) {
	n := len(plain) / l.size
	v := Values{
		leaf:  l,
		plain: plain,
		rep:   bytes.Repeat(pattern, n/len(pattern)),
		def:   bytes.Repeat([]byte{l.def}, n),
	}
	return v.Encode()
}

// Blobs encodes one byte array per row, without nulls. If the column is not compressed, the bytes
// are not copied. The caller must not modify them until the chunk is written.
func (l *Leaf) Blobs(rows [][]byte) (*Chunk, error) {
	v := Values{
		leaf:  l,
		items: rows,
		rep:   make([]byte, len(rows)),
		def:   bytes.Repeat([]byte{l.def}, len(rows)),
	}
	return v.Encode()
}

// valueAt returns value i. Nulls are not counted.
func (v *Values) valueAt(i int) []byte {
	if size := v.leaf.size; size > 0 {
		return v.plain[i*size : (i+1)*size]
	}
	return v.items[i]
}

// Encode returns the chunk and empties v.
func (v *Values) Encode() (c *Chunk, err error) {
	l := v.leaf
	defer crash.Recover("write parquet", &err)
	defer robocache.Locate(&err, l.where)
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	c = newChunk(l)
	encoding := format.Plain
	numbers, err := v.buildDictionary(c, s)
	if err != nil {
		return c, err
	}
	if numbers != nil {
		encoding = format.RLEDictionary
	}
	rep, def := v.rep, v.def[:len(v.rep)]
	for from, value := 0, 0; from < len(rep); {
		to, first, rows, size := from, value, 0, 0
		for ; to < len(rep) && (size < PageBytes || rep[to] != 0); to++ {
			if rep[to] == 0 {
				rows++
			}
			if def[to] < l.def {
				continue
			}
			if size += l.size; l.size == 0 {
				size += len(v.items[value]) + 4
			}
			value++
		}
		var body [][]byte
		switch {
		case numbers != nil:
			encodeInt32, err := new(rle.DictionaryEncoding).EncodeInt32(nil, numbers[first:value])
			if err != nil {
				return c, err
			}
			body = [][]byte{encodeInt32}
		case l.kind == parquet.Boolean:
			body = [][]byte{packBits(v.plain[first:value])}
		case l.size > 0:
			body = [][]byte{v.plain[first*l.size : value*l.size]}
		default:
			body = withLengths(v.items[first:value])
		}
		if l.size == 0 {
			c.meta.SizeStatistics.UnencodedByteArrayDataBytes += int64(size - 4*(value-first))
		}
		if err := c.addPage(rep[from:to], def[from:to], rows, to-from-(value-first),
			v.boundsBetween(first, value, numbers), encoding, body, s); err != nil {
			return c, err
		}
		from = to
	}
	*v = Values{leaf: l, rep: rep[:0], def: def[:0]}
	return c.finishChunk(encoding), nil
}

// withLengths returns the byte arrays with their lengths before them.
func withLengths(items [][]byte) [][]byte {
	lengths := make([]byte, 0, 4*len(items))
	out := make([][]byte, 0, 2*len(items))
	for k, b := range items {
		lengths = binary.LittleEndian.AppendUint32(lengths, uint32(len(b)))
		out = append(out, lengths[4*k:4*k+4:4*k+4], b)
	}
	return out
}

// packBits packs bytes that are 0 or 1 into bits. The first byte becomes the lowest bit.
func packBits(v []byte) []byte {
	out := make([]byte, (len(v)+7)/8)
	for i, b := range v {
		if b != 0 {
			out[i/8] |= 1 << (i % 8)
		}
	}
	return out
}

// buildDictionary writes the dictionary and returns the numbers of the values in it. It returns nil
// if the column has no dictionary, or if the dictionary would be too large.
func (v *Values) buildDictionary(c *Chunk, s *scratch) ([]int32, error) {
	n := len(v.items)
	if v.leaf.size > 0 {
		n = len(v.plain) / v.leaf.size
	}
	if !v.leaf.dictionary || n == 0 {
		return nil, nil
	}
	seen := map[string]int32{}
	numbers := make([]int32, n)
	var plain []byte
	for i := range numbers {
		b := v.valueAt(i)
		if i > 0 && bytes.Equal(b, v.valueAt(i-1)) {
			numbers[i] = numbers[i-1]
			continue
		}
		k, ok := seen[string(b)]
		if !ok {
			if len(plain)+len(b) > PageBytes {
				return nil, nil
			}
			k = int32(len(seen))
			seen[string(b)] = k
			if v.leaf.size == 0 {
				plain = binary.LittleEndian.AppendUint32(plain, uint32(len(b)))
			}
			plain = append(plain, b...)
		}
		numbers[i] = k
	}
	if err := c.putDictionary(len(seen), plain, s); err != nil {
		return nil, err
	}
	return numbers, nil
}
