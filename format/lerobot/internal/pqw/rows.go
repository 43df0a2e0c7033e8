package pqw

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"
)

// Pattern is the repetition levels of one row of nested lists of fixed lengths, none of them null: one level a value. No lengths: a scalar.
func Pattern(dims ...int) []byte {
	n := 1
	for _, d := range dims {
		n *= d
	}
	out := make([]byte, n)
	for i := 1; i < n; i++ {
		// The outermost list that goes on rather than begins.
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

// Rows encodes rows without nulls, each of as many values as its pattern has levels, as PLAIN writes them (booleans a byte each). A column with a dictionary
// is given by Repeated or Values.
func (l *Leaf) Rows(plain []byte, pattern []byte) (*Chunk, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	c := newChunk(l)
	row := len(pattern) * l.size
	per := max(1, PageBytes/row)
	var rep, def []byte
	for len(plain) > 0 {
		n := min(per, len(plain)/row)
		raw := plain[:n*row]
		plain = plain[len(raw):]
		values := n * len(pattern)
		if len(def) != values { // the last page's may be fewer
			def = bytes.Repeat([]byte{l.def}, values)
			if l.rep > 0 {
				rep = bytes.Repeat(pattern, n)
			}
		}
		b := l.boundsOf(raw)
		if l.kind == parquet.Boolean {
			raw = packBits(raw)
		}
		if err := c.add(&page{rows: int64(n), rep: rep, def: def, values: values, body: [][]byte{raw}, encoding: format.Plain, bounds: b}, s); err != nil {
			return nil, err
		}
	}
	return c.end(), nil
}

// Repeated encodes one number a row, none of them null, of few different ones, by a dictionary; where those do not fit one page, as Rows does.
func (l *Leaf) Repeated(plain []byte) (*Chunk, error) {
	seen := map[string]int32{}
	n := len(plain) / l.size
	numbers := make([]int32, n)
	var dict []byte
	for i := range numbers {
		v := plain[i*l.size : (i+1)*l.size]
		if i > 0 && bytes.Equal(v, plain[(i-1)*l.size:i*l.size]) {
			numbers[i] = numbers[i-1]
			continue
		}
		k, ok := seen[string(v)]
		if !ok {
			k = int32(len(seen))
			seen[string(v)], dict = k, append(dict, v...)
		}
		numbers[i] = k
	}
	if len(dict) > PageBytes {
		return l.Rows(plain, Pattern())
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	c := newChunk(l)
	if n > 0 {
		if err := c.dictionary(len(seen), dict, s); err != nil {
			return nil, err
		}
	}
	for per := PageBytes / l.size; len(numbers) > 0; {
		part := numbers[:min(per, len(numbers))]
		numbers = numbers[len(part):]
		body, err := new(rle.DictionaryEncoding).EncodeInt32(nil, part)
		if err != nil {
			return nil, err
		}
		p := page{rows: int64(len(part)), rep: make([]byte, len(part)), def: bytes.Repeat([]byte{l.def}, len(part)), values: len(part), body: [][]byte{body}, encoding: format.RLEDictionary}
		for _, k := range slices.Compact(slices.Clone(part)) {
			v := dict[int(k)*l.size : int(k+1)*l.size]
			p.bounds.merge(l, bounds{lo: v, hi: v, ok: true})
		}
		if err := c.add(&p, s); err != nil {
			return nil, err
		}
	}
	return c.end(), nil
}

// Blobs encodes one byte array a row, none of them null. What is not compressed is not copied either: it must stay as it is until the chunk is written.
func (l *Leaf) Blobs(rows [][]byte) (*Chunk, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	c := newChunk(l)
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && (n == 0 || size < PageBytes) {
			size += len(rows[n])
			n++
		}
		lengths := make([]byte, 0, 4*n)
		body := make([][]byte, 0, 2*n)
		for k, b := range rows[:n] {
			lengths = binary.LittleEndian.AppendUint32(lengths, uint32(len(b)))
			body = append(body, lengths[4*k:4*k+4:4*k+4], b)
		}
		if err := c.add(&page{rows: int64(n), rep: make([]byte, n), def: bytes.Repeat([]byte{l.def}, n), values: n, body: body, plain: int64(size), encoding: format.Plain}, s); err != nil {
			return nil, err
		}
		rows = rows[n:]
	}
	return c.end(), nil
}

// packBits packs bytes of 0 and 1, the first into the lowest bit.
func packBits(v []byte) []byte {
	out := make([]byte, (len(v)+7)/8)
	for i, b := range v {
		if b != 0 {
			out[i/8] |= 1 << (i % 8)
		}
	}
	return out
}

// Widen makes 32-bit integers of narrower ones.
func Widen[T int8 | uint8 | int16 | uint16](raw []byte, size int, read func([]byte) T) []byte {
	out := slices.Grow([]byte(nil), len(raw)/size*4)
	for ; len(raw) >= size; raw = raw[size:] {
		out = binary.LittleEndian.AppendUint32(out, uint32(int32(read(raw))))
	}
	return out
}
