package pqw

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"
)

// Rows of nested lists have the levels that Parquet requires.
func TestPattern(t *testing.T) {
	for _, c := range []struct {
		dims []int
		want []byte
	}{
		{nil, []byte{0}},
		{[]int{3}, []byte{0, 1, 1}},
		{[]int{2, 3}, []byte{0, 2, 2, 1, 2, 2}},
		{[]int{2, 1, 2}, []byte{0, 3, 1, 3}},
		{[]int{0}, []byte{}},
	} {
		if got := Pattern(c.dims...); !bytes.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.dims, got, c.want)
		}
	}
}

// every is a row with every kind of column.
type every struct {
	F    *float32  `parquet:"f,optional"`
	L    []float64 `parquet:"l,list"`
	B    *bool     `parquet:"b,optional"`
	Text *string   `parquet:"text,optional,dict"`
	Raw  []byte    `parquet:"raw,uncompressed"`
	I    *int64    `parquet:"i,optional,dict"`
	U    *uint32   `parquet:"u,optional"`
	N    *float32  `parquet:"n,optional"`
}

// The Parquet library reads what was written, over several row groups and pages, and the bounds are
// correct (pqw.P1, pqw.P2, pqw.P3).
func TestLibraryReads(t *testing.T) {
	schema := parquet.SchemaOf(every{})
	leaves, err := Leaves(schema)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, l := range leaves {
		at[l.path[0]] = i
	}
	rng := rand.New(rand.NewPCG(1, 2))
	le := binary.LittleEndian
	var want []every
	write := func() []byte {
		rng = rand.New(rand.NewPCG(1, 2))
		want = nil
		var out bytes.Buffer
		f, err := NewFile(&out, schema, map[string]string{"a": "b"}, "test")
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{1, 7, 100_003} {
			var fs, bs, us, ls []byte
			var raws [][]byte
			text, nulls := leaves[at["text"]].NewValues(), leaves[at["n"]].NewValues()
			var ints []byte
			for k := range rows {
				x, u, b := rng.Float32()-0.5, rng.Uint32(), rng.IntN(2) == 1
				if k == 3 {
					x = float32(math.NaN())
				}
				r := every{F: &x, B: &b, U: &u, L: []float64{rng.NormFloat64(), float64(k)}}
				fs, us = le.AppendUint32(fs, math.Float32bits(x)), le.AppendUint32(us, u)
				for _, v := range r.L {
					ls = le.AppendUint64(ls, math.Float64bits(v))
				}
				if b {
					bs = append(bs, 1)
				} else {
					bs = append(bs, 0)
				}
				r.Raw = make([]byte, rng.IntN(40))
				for i := range r.Raw {
					r.Raw[i] = byte(rng.Uint32())
				}
				raws = append(raws, r.Raw)
				if n := rng.IntN(5); n > 0 {
					s := string([]byte{'a', byte('a' + n)})
					r.Text = &s
					text.Add([]byte(s), 0, 1)
				} else {
					text.Null(0, 0)
				}
				i := int64(k / 1000)
				if rows == 7 {
					i = int64(k) << 40
				}
				r.I = &i
				ints = le.AppendUint64(ints, uint64(i))
				nulls.Null(0, 0)
				want = append(want, r)
			}
			chunks := make([]*Chunk, len(leaves))
			set := func(key string, c *Chunk, err error) {
				if err != nil {
					t.Fatal(key, err)
				}
				chunks[at[key]] = c
			}
			c, err := leaves[at["f"]].Rows(fs, Pattern())
			set("f", c, err)
			c, err = leaves[at["l"]].Rows(ls, Pattern(2))
			set("l", c, err)
			c, err = leaves[at["b"]].Rows(bs, Pattern())
			set("b", c, err)
			c, err = leaves[at["u"]].Rows(us, Pattern())
			set("u", c, err)
			c, err = leaves[at["raw"]].Blobs(raws)
			set("raw", c, err)
			c, err = text.Encode()
			set("text", c, err)
			c, err = leaves[at["i"]].Rows(ints, Pattern())
			set("i", c, err)
			c, err = nulls.Encode()
			set("n", c, err)
			if err := f.Append(int64(rows), chunks); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	file := write()
	p, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := p.Lookup("a"); v != "b" || p.NumRows() != 100_011 || len(p.RowGroups()) != 3 {
		t.Errorf("metadata %q, %d rows, %d row groups", v, p.NumRows(), len(p.RowGroups()))
	}
	got, err := parquet.Read[every](bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		a, b := &got[i], &want[i]
		same := math.Float32bits(*a.F) == math.Float32bits(*b.F) && *a.B == *b.B && *a.U == *b.U &&
			*a.I == *b.I &&
			slices.Equal(a.L, b.L) &&
			bytes.Equal(a.Raw, b.Raw) &&
			a.N == nil
		if same = same && (a.Text == nil) == (b.Text == nil); same && a.Text != nil {
			same = *a.Text == *b.Text
		}
		if !same {
			t.Fatalf("row %d: %+v, want %+v", i, a, b)
		}
	}
	pages := 0
	for _, g := range p.RowGroups() {
		for i, c := range g.ColumnChunks() {
			x, err := c.ColumnIndex()
			key := leaves[i].path[0]
			if key == "raw" {
				continue
			}
			if err != nil {
				t.Fatal(key, err)
			}
			o, err := c.OffsetIndex()
			if err != nil || o.NumPages() != x.NumPages() {
				t.Fatal(key, err)
			}
			pages += x.NumPages()
			for k := range x.NumPages() {
				if x.NullPage(k) != (key == "n") {
					t.Errorf("%s: page %d: null %v", key, k, x.NullPage(k))
				} else if key == "l" && !(x.MinValue(k).Double() < x.MaxValue(k).Double()) {
					t.Errorf("%s: bounds %v %v", key, x.MinValue(k), x.MaxValue(k))
				} else if key == "f" && (math.IsNaN(float64(x.MinValue(k).Float())) ||
					!(x.MinValue(k).Float() <= x.MaxValue(k).Float())) {
					t.Errorf("%s: bounds %v %v", key, x.MinValue(k), x.MaxValue(k))
				}
			}
		}
	}
	if pages != 22 {
		t.Errorf("%d pages, want 22: float64 lists in two, all else in one", pages)
	}
	if !bytes.Equal(file, write()) {
		t.Error("the same rows gave other bytes")
	}
}

// Bounds cover the numbers in the order of the type, and −0 is below +0 (pqw.P3).
func TestBounds(t *testing.T) {
	le := binary.LittleEndian
	floats := func(v ...float64) (out []byte) {
		for _, x := range v {
			out = le.AppendUint64(out, math.Float64bits(x))
		}
		return out
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct{ v, want []float64 }{
		{[]float64{nan, 2, 1}, []float64{1, 2}},
		{[]float64{nan}, nil},
		{nil, nil},
		{[]float64{inf, inf}, []float64{inf, inf}},
		{[]float64{-inf}, []float64{-inf, -inf}},
		{[]float64{0}, []float64{math.Copysign(0, -1), 0}},
		{[]float64{math.Copysign(0, -1)}, []float64{math.Copysign(0, -1), 0}},
	} {
		b := (&Leaf{kind: parquet.Double, size: 8, bounded: true}).boundsOf(floats(c.v...))
		if b.ok != (c.want != nil) ||
			b.ok &&
				(!bytes.Equal(b.lo, floats(c.want[0])) || !bytes.Equal(b.hi, floats(c.want[1]))) {
			t.Errorf("%v: %v", c.v, b)
		}
	}
	for unsigned, want := range map[bool][2]int32{false: {-1, 5}, true: {3, -1}} {
		var v []byte
		for _, x := range []int32{5, -1, 3} {
			v = le.AppendUint32(v, uint32(x))
		}
		b := (&Leaf{kind: parquet.Int32, size: 4, unsigned: unsigned, bounded: true}).boundsOf(v)
		if int32(le.Uint32(b.lo)) != want[0] || int32(le.Uint32(b.hi)) != want[1] {
			t.Errorf("unsigned %v: %v", unsigned, b)
		}
	}
}

// A row group with a missing column, or with a column of missing rows, is an error.
func TestAppendRefuses(t *testing.T) {
	schema := parquet.NewSchema(
		"schema",
		parquet.Group{
			"a": parquet.Compressed(parquet.Leaf(parquet.FloatType), &snappy.Codec{}),
			"b": parquet.Leaf(parquet.FloatType),
		},
	)
	leaves, err := Leaves(schema)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFile(&bytes.Buffer{}, schema, nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	var chunks []*Chunk
	for i, l := range leaves {
		c, err := l.Rows(make([]byte, 4*(2+i)), Pattern())
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, c)
	}
	if f.Append(2, chunks[:1]) == nil || f.Append(2, chunks) == nil {
		t.Error("a row group without all its rows was taken")
	}
}
