package pq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// mem is a file in memory that rejects reads outside its bounds.
type mem []byte

func (m mem) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m)) || int64(len(p)) > int64(len(m))-off {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "outside the file"}
	}
	copy(p, m[off:])
	return nil
}
func (m mem) Size() int64     { return int64(len(m)) }
func (m mem) Version() string { return "1" }
func (m mem) Close() error    { return nil }

type row struct {
	State []float32  `parquet:"state,list"`
	F64   float64    `parquet:"f64,split"`
	I64   int64      `parquet:"i64,delta"`
	I32   int32      `parquet:"i32,dict"`
	Bool  bool       `parquet:"bool"`
	Text  string     `parquet:"text,delta"`
	Word  string     `parquet:"word,dict"`
	Opt   *int64     `parquet:"opt,optional"`
	Nest  []struct { // a language column
		Role  string   `parquet:"role"`
		Calls []string `parquet:"tool_calls,list"`
	} `parquet:"nest,list"`
}

func rows(n int) []row {
	out := make([]row, n)
	for i := range out {
		r := &out[i]
		r.State = []float32{float32(i), 1, -2}
		r.F64, r.I64, r.I32, r.Bool = float64(i)/3, int64(i*i)-5, int32(i%3), i%3 == 0
		r.Text, r.Word = fmt.Sprint("text ", i), []string{"a", "bc", ""}[i%3]
		if i%2 == 0 {
			v := int64(i)
			r.Opt = &v
		}
		r.Nest = make([]struct {
			Role  string   `parquet:"role"`
			Calls []string `parquet:"tool_calls,list"`
		}, i%3)
		for k := range r.Nest {
			r.Nest[k].Role = "user"
			r.Nest[k].Calls = []string{"{}", "[1]"}[:k]
		}
	}
	return out
}

func file(t testing.TB, n, perGroup int, codec compress.Codec, version int) mem {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](
		&b,
		parquet.Compression(codec),
		parquet.DataPageVersion(version),
		parquet.PageBufferSize(512),
	)
	all := rows(n)
	for len(all) > 0 {
		k := min(perGroup, len(all))
		if _, err := w.Write(all[:k]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		all = all[k:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var codecs = []compress.Codec{
	&parquet.Snappy,
	&parquet.Zstd,
	&parquet.Gzip,
	&parquet.Brotli,
	&parquet.Lz4Raw,
	&parquet.Uncompressed,
}

// TestRoundTrip reads files of another library: encodings, compressions, page versions, nulls,
// nesting.
func TestRoundTrip(t *testing.T) {
	ctx := context.Background()
	for _, codec := range codecs {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprint(codec, version), func(t *testing.T) {
				const n = 1000
				m := file(t, n, 300, codec, version)
				f, err := Open(ctx, m, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := rows(n)
				at := 0
				for g := range f.Groups {
					col := func(name string, shape []int) *Column {
						c, err := ReadColumn(
							ctx,
							m,
							f,
							g,
							f.Column(name).OnlyLeaf(),
							shape,
							Limits{1 << 20},
						)
						if err != nil {
							t.Fatal(name, err)
						}
						return c
					}
					state, f64, i64, i32, bl := col(
						"state",
						[]int{3},
					), col(
						"f64",
						nil,
					), col(
						"i64",
						nil,
					), col(
						"i32",
						nil,
					), col(
						"bool",
						nil,
					)
					text, word, opt := col("text", nil), col("word", nil), col("opt", nil)
					nest, err := ReadJSON(
						ctx,
						m,
						f,
						g,
						f.Column("nest"),
						func(n *Node) bool { return n.MaxRep == 2 },
						Limits{1 << 20},
					)
					if err != nil {
						t.Fatal(err)
					}
					present := 0
					for k := range int(f.Groups[g].Rows) {
						w := want[at+k]
						le := binary.LittleEndian
						if math.Float32frombits(le.Uint32(state.Item(3*k))) != w.State[0] ||
							math.Float64frombits(le.Uint64(f64.Item(k))) != w.F64 ||
							int64(le.Uint64(i64.Item(k))) != w.I64 ||
							int32(le.Uint32(i32.Item(k))) != w.I32 ||
							(bl.Item(k)[0] == 1) != w.Bool ||
							string(text.Item(k)) != w.Text ||
							string(word.Item(k)) != w.Word {
							t.Fatal("row", at+k)
						}
						if w.Opt != nil {
							if int(opt.Def[k]) != 1 ||
								int64(le.Uint64(opt.Item(present))) != *w.Opt {
								t.Fatal("optional, row", at+k)
							}
							present++
						} else if opt.Def[k] != 0 {
							t.Fatal("null, row", at+k)
						}
						wantJSON := []string{
							`[]`,
							`[{"role": "user", "tool_calls": []}]`,
							`[{"role": "user", "tool_calls": []}, {"role": "user", "tool_calls": [{}]}]`,
						}[(at+k)%3]
						if nest[k] != wantJSON {
							t.Fatal("row", at+k, nest[k])
						}
					}
					list, err := Pages(ctx, m, f, g, f.Column("text"))
					if err != nil {
						t.Fatal(err)
					}
					for i, p := range list.Pages {
						c, err := ReadPage(ctx, m, f, g, f.Column("text"), list, i, Limits{1 << 20})
						if err != nil || string(c.Item(0)) != want[at+int(p.Start)].Text ||
							c.Len() != int(p.Rows) {
							t.Fatal(i, err)
						}
					}
					at += int(f.Groups[g].Rows)
				}
			})
		}
	}
}

// TestProjection checks that only requested columns are kept and read.
func TestProjection(t *testing.T) {
	m := file(t, 10, 10, &parquet.Snappy, 1)
	f, err := Open(context.Background(), m, func(c string) bool { return c == "i64" })
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Groups[0].chunks) != 1 {
		t.Error(len(f.Groups[0].chunks))
	}
	_, err = ReadColumn(context.Background(), m, f, 0, f.Column("f64"), nil, Limits{1 << 20})
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// TestDepth checks the repetition levels of arrays of any shape.
func TestDepth(t *testing.T) {
	for _, dims := range [][]int{{3}, {2, 3}, {2, 3, 4}, {1, 2}, {2, 1, 2}, {1, 1}} {
		n := 1
		for _, d := range dims {
			n *= d
		}
		for at := range n {
			// Expected level, counted by hand: the outermost dimension whose index changed.
			want := 0
			if at > 0 {
				a, b, lev := at-1, at, len(dims)
				for k := len(dims) - 1; k >= 0; k-- {
					if a%dims[k] != b%dims[k] {
						want = lev
					}
					a, b, lev = a/dims[k], b/dims[k], lev-1
				}
			}
			if got := int(repetitionLevelAt(at, dims)); got != want {
				t.Errorf("%v element %d: %d, want %d", dims, at, got, want)
			}
		}
	}
}

const (
	fuzzLimit = 1 << 16
	fuzzAlloc = 48 << 20 // decoders of zstd and gzip use most of it
)

// abuse reads everything in a file of arbitrary bytes. The reads must return values or a typed
// error, and use little memory.
func abuse(t *testing.T, m mem) {
	ctx := context.Background()
	before := hostile.Allocated()
	defer func() {
		if got := hostile.Allocated() - before; got > fuzzAlloc {
			t.Errorf("%d bytes were allocated for a file of %d", got, len(m))
		}
	}()
	check := func(err error) {
		t.Helper()
		hostile.Typed(t, err)
	}
	f, err := Open(ctx, m, nil)
	check(err)
	if err != nil {
		return
	}
	for g := range f.Groups[:min(4, len(f.Groups))] {
		for _, leaf := range f.Leaves[:min(16, len(f.Leaves))] {
			c, err := ReadColumn(ctx, m, f, g, leaf, nil, Limits{fuzzLimit})
			check(err)
			if err == nil && leaf.MaxRep == 0 && int64(c.Entries) != f.Groups[g].Rows {
				t.Errorf("%d entries for %d rows", c.Entries, f.Groups[g].Rows)
			}
			_, err = ReadColumn(ctx, m, f, g, leaf, []int{3}, Limits{fuzzLimit})
			check(err)
			l, err := Pages(ctx, m, f, g, leaf)
			check(err)
			if err == nil && len(l.Pages) > 0 {
				_, err = ReadPage(ctx, m, f, g, leaf, l, len(l.Pages)-1, Limits{fuzzLimit})
				check(err)
			}
		}
		for _, top := range f.Root.Children[:min(16, len(f.Root.Children))] {
			if top.Group() {
				_, err := ReadJSON(ctx, m, f, g, top, nil, Limits{fuzzLimit})
				check(err)
			}
		}
	}
}

// TestMutations cuts small files, and sets bytes to 0, 255, ±1. Each kind of file gets other
// mutations.
func TestMutations(t *testing.T) {
	step, cut := 3*len(codecs), 3
	if os.Getenv("ROBOCACHE_EXHAUSTIVE") == "1" {
		step, cut = 1, 1
	}
	t.Logf(
		"every %d-th byte altered, cut at every %d-rd length (ROBOCACHE_EXHAUSTIVE=1: every one)",
		step,
		cut,
	)
	for i, codec := range codecs {
		m := file(t, 7, 4, codec, 1+i%2)
		for at := i % cut; at < len(m); at += cut {
			abuse(t, m[:at])
		}
		for at := i; at < len(m); at += step {
			for _, v := range []byte{0, 255, m[at] + 1, m[at] - 1} {
				old := m[at]
				m[at] = v
				abuse(t, m)
				m[at] = old
			}
			if t.Failed() {
				t.Fatal("at", at)
			}
		}
	}
}

// TestHugeMap checks that a map which declares 2^62 booleans ends with the data.
func TestHugeMap(t *testing.T) {
	b := binary.AppendUvarint(nil, 1<<62)
	c := &cursor{b: append(b, tTrue<<4|tFalse, 1, 2, 1)}
	done := make(chan error)
	go func() { done <- guard.Try(func() { c.skipValue(tMap, 0) }) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no fault")
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("still walking")
	}
}

func FuzzFile(f *testing.F) {
	for i, codec := range codecs {
		f.Add([]byte(file(f, 5, 3, codec, 1+i%2)))
	}
	f.Fuzz(func(t *testing.T, b []byte) { abuse(t, b) })
}
