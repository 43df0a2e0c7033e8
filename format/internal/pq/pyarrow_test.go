package pq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/goatnote-inc/robocache"
)

// TestPyarrow reads files of pyarrow 26 (testdata/make_pyarrow.py): each codec and encoding, for
// every type of a LeRobot column.
func TestPyarrow(t *testing.T) {
	names, err := filepath.Glob("testdata/pyarrow/*.parquet")
	if err != nil || len(names) != 21 {
		t.Fatal(len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".parquet"), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			checkPyarrow(t, mem(b))
		})
	}
}

func checkPyarrow(t *testing.T, m mem) {
	ctx := context.Background()
	f, err := Open(ctx, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	f32 := func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }
	f64 := func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }
	i64 := func(b []byte) float64 { return float64(int64(le.Uint64(b))) }
	i32 := func(b []byte) float64 { return float64(int32(le.Uint32(b))) }
	numbers := []struct {
		key   string
		shape []int
		get   func(b []byte) float64
		want  func(i, k int) float64
	}{
		{"state", []int{3}, f32, func(i, k int) float64 { return []float64{float64(i), 1, -2}[k] }},
		{"fixed", []int{2}, f32, func(i, k int) float64 { return float64(i) / 4 }},
		{"f64", nil, f64, func(i, _ int) float64 { return float64(i) / 3 }},
		{"f32", nil, f32, func(i, _ int) float64 { return float64(float32(float64(i) / 7)) }},
		{
			"f16",
			nil,
			func(b []byte) float64 { return half(le.Uint16(b)) },
			func(i, _ int) float64 { return float64(i) / 8 },
		},
		{"i64", nil, i64, func(i, _ int) float64 { return float64(i*i - 5) }},
		{"i32", nil, i32, func(i, _ int) float64 { return float64(i % 3) }},
		{"u8", nil, i32, func(i, _ int) float64 { return float64(i % 251) }},
		{
			"bool",
			nil,
			func(b []byte) float64 { return float64(b[0]) },
			func(i, _ int) float64 { return map[bool]float64{true: 1}[i%3 == 0] },
		},
	}
	texts := map[string]func(i int) string{
		"text":  func(i int) string { return fmt.Sprint("text ", i) },
		"large": func(i int) string { return fmt.Sprint("large ", i/5) },
		"image": func(i int) string { return strings.Repeat(string([]byte{byte(i)}), i%4) },
	}
	at := 0
	for g := range f.Groups {
		n := int(f.Groups[g].Rows)
		for _, c := range numbers {
			col, err := ReadColumn(
				ctx,
				m,
				f,
				g,
				f.Column(c.key).OnlyLeaf(),
				c.shape,
				Limits{1 << 20},
			)
			if err != nil {
				t.Fatal(c.key, err)
			}
			width := 1
			for _, d := range c.shape {
				width *= d
			}
			for i := range n * width {
				if got, want := c.get(col.Item(i)), c.want(at+i/width, i%width); got != want {
					t.Fatalf("%s, row %d: %v, want %v", c.key, at+i/width, got, want)
				}
			}
		}
		for key, want := range texts {
			leaf := f.Column(key).OnlyLeaf()
			if key == "image" {
				leaf = f.Column(key).Children[0]
			}
			col, err := ReadColumn(ctx, m, f, g, leaf, nil, Limits{1 << 20})
			if err != nil {
				t.Fatal(key, err)
			}
			for i := range n {
				if got := string(col.Item(i)); got != want(at+i) {
					t.Fatalf("%s, row %d: %q, want %q", key, at+i, got, want(at+i))
				}
			}
		}
		opt, err := ReadColumn(ctx, m, f, g, f.Column("opt").OnlyLeaf(), nil, Limits{1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		present := 0
		for i := range n {
			if (opt.Def[i] == 1) != ((at+i)%2 == 0) {
				t.Fatal("null, row", at+i)
			}
			if opt.Def[i] == 1 {
				if i64(opt.Item(present)) != float64(at+i) {
					t.Fatal("optional, row", at+i)
				}
				present++
			}
		}
		at += n
	}
	if at != 200 {
		t.Fatal(at, "rows")
	}
}

// half returns the value of a float16, which must be small and normal, or 0.
func half(x uint16) float64 {
	if x == 0 {
		return 0
	}
	return math.Ldexp(1+float64(x&0x3ff)/1024, int(x>>10)-15)
}

// TestBrotli reads pages whose size differs from the declared one, damaged pages, and a page that
// declares a large window.
func TestBrotli(t *testing.T) {
	plain := bytes.Repeat([]byte("robots record "), 100)
	var packed bytes.Buffer
	w := brotli.NewWriterLevel(&packed, 9)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // decoders are reused
		dst := make([]byte, len(plain))
		if err := decompressInto(4, dst, packed.Bytes()); err != nil || !bytes.Equal(dst, plain) {
			t.Fatal(err)
		}
		for _, n := range []int{len(plain) - 1, len(plain) + 1, 0} {
			if err := decompressInto(4, make([]byte, n), packed.Bytes()); !errors.Is(err,
				robocache.ErrMalformed) {
				t.Errorf("a page that declares %d bytes: %v", n, err)
			}
		}
		for cut := range packed.Len() {
			if err := decompressInto(4, make([]byte, len(plain)),
				packed.Bytes()[:cut]); !errors.Is(err, robocache.ErrMalformed) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		for i := range packed.Len() {
			b := bytes.Clone(packed.Bytes())
			for bit := range 8 {
				b[i] ^= 1 << bit
				if err := decompressInto(4, make([]byte, len(plain)), b); err != nil &&
					!errors.Is(err, robocache.ErrMalformed) {
					t.Fatal(err)
				}
				b[i] ^= 1 << bit
			}
		}
	}
	if err := decompressInto(4, make([]byte, 8),
		[]byte{0x11, 0x1e, 0, 0, 0, 0, 0, 0}); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a large window: %v", err)
	}
}
