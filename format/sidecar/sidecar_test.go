package sidecar

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
)

// memory is a file in memory.
type memory []byte

func (m memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m)) || copy(p, m[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}
func (m memory) Size() int64     { return int64(len(m)) }
func (m memory) Version() string { return "" }
func (m memory) Close() error    { return nil }

// manyRows returns columns of every type, over two row groups.
func manyRows(n int) []Column {
	c := []Column{
		{Name: "episode_index", Integers: make([]int64, n)},
		{Name: "task", Texts: make([]string, n)},
		{Name: "idle", Numbers: make([]float64, n)},
		{Name: "sketch", Vectors: make([]float32, 3*n), Width: 3},
		{Name: "hash", Words: make([]int64, 2*n), Width: 2},
	}
	for i := range n {
		c[0].Integers[i] = int64(i) * 7
		c[1].Texts[i] = []string{"pick", "", "place"}[i%3]
		if c[2].Numbers[i] = float64(i) / 3; i%5 == 0 {
			c[2].Numbers[i] = math.NaN()
		}
		c[3].Vectors[3*i], c[4].Words[2*i+1] = float32(i), -int64(i)
	}
	return c
}

// A table that was written is read equal, and the Parquet library reads it too (sidecar.S2).
func TestTableIsReadEqual(t *testing.T) {
	const n = groupRows + 10
	want := manyRows(n)
	var b bytes.Buffer
	if err := Write(&b, want, map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	got, meta, err := Read(t.Context(), memory(b.Bytes()), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range want[2].Numbers {
		if w := got[2].Numbers[i]; v != w && (v == v || w == w) {
			t.Fatalf("row %d: %v, want %v", i, w, v)
		}
	}
	want[2].Numbers, got[2].Numbers = nil, nil
	if !reflect.DeepEqual(got, want) || meta["a"] != "b" {
		t.Errorf("the columns or the metadata %v differ", meta)
	}
	type row struct {
		Episode int64     `parquet:"episode_index"`
		Idle    *float64  `parquet:"idle"`
		Sketch  []float32 `parquet:"sketch,list"`
	}
	rows, err := parquet.Read[row](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(rows) != n || rows[5].Idle != nil || *rows[4].Idle != 4.0/3 ||
		rows[2].Sketch[0] != 2 {
		t.Errorf("the library reads %d rows (%v)", len(rows), err)
	}
}

// A table beyond the limit is refused (sidecar.S3).
func TestReadHasALimit(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, manyRows(1000), nil); err != nil {
		t.Fatal(err)
	}
	_, _, err := Read(t.Context(), memory(b.Bytes()), 10_000)
	if !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("%v, want ErrResourceLimit", err)
	}
}

// Read never panics on a damaged file.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, manyRows(20), map[string]string{"a": "b"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = Read(t.Context(), memory(b), 1<<20)
	})
}
