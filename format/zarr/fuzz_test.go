package zarr

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// mem returns a store with the given files.
func mem(files map[string]string) *storetest.Mem {
	m := storetest.NewMem("fuzz")
	for name, b := range files {
		m.Put(name, []byte(b))
	}
	return m
}

// readAll opens a store and reads a few rows of every stream.
func readAll(t testing.TB, s store.Store, budget int64) {
	d, err := OpenStore(
		t.Context(),
		s,
		robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}, MemoryBudget: budget},
	)
	hostile.Typed(t, err)
	if err != nil {
		return
	}
	defer d.Close()
	for e := range min(d.Info().Episodes, 3) {
		_, err := d.Episode(t.Context(), e)
		hostile.Typed(t, err)
		if d.Len(e) < 1<<16 {
			_, err = d.Times(t.Context(), e, "")
			hostile.Typed(t, err)
		}
		for _, f := range d.Info().Features {
			var rows []robocache.Row
			for k := range min(d.rowCount(d.views[f.Key], e), 3) {
				rows = append(rows, robocache.Row{Episode: e, Index: k})
			}
			switch f.Kind {
			case robocache.KindNumeric:
				if f.RowBytes() < 1<<20 {
					hostile.Typed(
						t,
						d.Gather(t.Context(), f.Key, rows, make([]byte, len(rows)*f.RowBytes())),
					)
				}
			case robocache.KindImage:
				if d.views[f.Key].a.rowBytes < 1<<20 {
					hostile.Typed(
						t,
						d.Frames(t.Context(), f.Key, rows, make([]robocache.FrameRef, len(rows))),
					)
				}
			default:
				_, err := d.Text(t.Context(), f.Key, rows)
				hostile.Typed(t, err)
			}
		}
	}
}

func packed(b []byte) string {
	e, _ := zstd.NewWriter(nil)
	return string(e.EncodeAll(b, nil))
}

const arrayMetaV2 = `{"zarr_format":2,"shape":[4,2],"chunks":[3,2],"dtype":"<f4","compressor":%s,"fill_value":0,"order":"C","filters":%s}`

// FuzzMetadata checks that arbitrary metadata files give a result or a typed error, and memory
// stays within the limits (zarr.A6).
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(arrayMetaV2, `{"id":"zstd"}`, "null")), false)
	f.Add([]byte(fmt.Sprintf(arrayMetaV2, `null`, `[{"id":"delta","dtype":"<f4"}]`)), false)
	f.Add(
		[]byte(
			`{"zarr_format":2,"shape":[4],"chunks":[4],"dtype":"|O","compressor":null,"fill_value":"","order":"C","filters":[{"id":"vlen-utf8"}]}`,
		),
		false,
	)
	f.Add(
		[]byte(
			`{"zarr_format":3,"node_type":"array","shape":[3,3],"data_type":"int16","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,2]}},"chunk_key_encoding":{"name":"default"},"fill_value":"0x7fc0","codecs":[{"name":"sharding_indexed","configuration":{"chunk_shape":[1,2],"codecs":[{"name":"transpose","configuration":{"order":[1,0]}},{"name":"bytes"},{"name":"gzip"}],"index_codecs":[{"name":"bytes"},{"name":"crc32c"}]}}]}`,
		),
		true,
	)
	f.Fuzz(func(t *testing.T, b []byte, v3 bool) {
		before := hostile.Allocated()
		chunk := packed(make([]byte, 24))
		files := map[string]string{
			".zgroup":   `{"zarr_format":2}`,
			"a/.zarray": string(b),
			"a/0.0":     chunk,
			"a/0":       chunk,
		}
		if v3 {
			files = map[string]string{"zarr.json": string(b), "c/0/0": chunk, "c/0": chunk}
		}
		readAll(t, mem(files), 1<<20)
		if got := hostile.Allocated() - before; got > 64<<20 {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzChunk reads arbitrary bytes as a chunk or a shard of arrays with each codec (zarr.A6).
func FuzzChunk(f *testing.F) {
	f.Add([]byte(packed(make([]byte, 24))))
	f.Add(
		[]byte(
			"\x02\x01\x21\x04\x18\x00\x00\x00\x18\x00\x00\x00\x28\x00\x00\x00012345678901234567890123",
		),
	)
	f.Add([]byte("\x18\x00\x00\x00\x1f\x00\x01\x00\x10000000000"))
	f.Add(
		[]byte("\x04\x00\x00\x00\x01\x00\x00\x00a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		files := map[string]string{".zgroup": `{"zarr_format":2}`}
		for _, c := range []string{"blosc", "zstd", "gzip", "zlib", "lz4", "crc32", "adler32"} {
			files[c+"/.zarray"] = fmt.Sprintf(
				arrayMetaV2,
				`{"id":"`+c+`"}`,
				`[{"id":"shuffle","elementsize":4}]`,
			)
			files[c+"/0.0"] = string(b)
			files["t"+c+"/.zarray"] = `{"zarr_format":2,"shape":[4],"chunks":[4],"dtype":"|O","compressor":{"id":"` + c + `"},"fill_value":"","order":"C","filters":[{"id":"vlen-utf8"}]}`
			files["t"+c+"/0"] = string(b)
		}
		readAll(t, mem(files), 1<<20)
		shard := `{"zarr_format":3,"node_type":"array","shape":[3,3],"data_type":"int16","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2,2]}},"chunk_key_encoding":{"name":"default"},"fill_value":7,"codecs":[{"name":"sharding_indexed","configuration":{"chunk_shape":[1,2],"codecs":[{"name":"bytes"}],"index_codecs":[{"name":"bytes"}]}}]}`
		readAll(t, mem(map[string]string{"zarr.json": shard, "c/0/0": string(b)}), 1<<20)
		// Data compressed by the first text codec may need 1000 times its size up to 64 MiB
		// (small/4 if the size is not stored).
		if got := hostile.Allocated() - before; got > uint64(48<<20+40_000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// TestLies reads metadata and chunks that declare absent data.
func TestLies(t *testing.T) {
	meta := func(change map[string]any) string {
		m := map[string]any{
			"zarr_format": 2,
			"shape":       []int{4, 2},
			"chunks":      []int{3, 2},
			"dtype":       "<f4",
			"compressor":  nil,
			"fill_value":  0,
			"order":       "C",
			"filters":     nil,
		}
		for k, v := range change {
			m[k] = v
		}
		b, _ := json.Marshal(m)
		return string(b)
	}
	open := func(files map[string]string) (*Dataset, error) {
		files[".zgroup"] = `{"zarr_format":2}`
		return OpenStore(
			t.Context(),
			mem(files),
			robocache.OpenOptions{HZ: robocache.Rate{Num: 1, Den: 1}},
		)
	}
	row := func(d *Dataset, r int) ([]byte, error) {
		b := make([]byte, 8)
		return b, d.Gather(t.Context(), "a", []robocache.Row{{Index: r}}, b)
	}
	whole := strings.Repeat("\x00\x00\x80\x3f", 6)
	for name, c := range map[string]struct {
		meta, chunk string
		class       error
		text        string
	}{
		"chunks of another rank": {meta(
			map[string]any{"chunks": []int{3}},
		), whole, robocache.ErrMalformed, "chunks"},
		"chunk of nothing": {meta(
			map[string]any{"chunks": []int{0, 2}},
		), whole, robocache.ErrMalformed, "chunks"},
		"huge chunks": {meta(
			map[string]any{"shape": []int{4, 2}, "chunks": []int{1 << 40, 1 << 40}},
		), whole, robocache.ErrResourceLimit, "chunks"},
		"huge shape": {meta(
			map[string]any{"shape": []int{1 << 60, 2}},
		), whole, robocache.ErrMalformed, "shape"},
		"short chunk": {
			meta(nil),
			whole[:20],
			robocache.ErrMalformed,
			"expected 24 bytes, found 20",
		},
		"long chunk": {
			meta(nil),
			whole + "x",
			robocache.ErrMalformed,
			"expected 24 bytes, found 25",
		},
		"unknown codec": {meta(
			map[string]any{"compressor": map[string]any{"id": "imagecodecs_webp"}},
		), whole, robocache.ErrUnsupported, "imagecodecs_webp"},
		"pickled objects": {meta(
			map[string]any{
				"shape":   []int{4},
				"chunks":  []int{4},
				"dtype":   "|O",
				"filters": []any{map[string]any{"id": "pickle"}},
			},
		), whole, robocache.ErrUnsupported, "pickle"},
		"blosc that lies": {
			meta(
				map[string]any{"compressor": map[string]any{"id": "blosc"}},
			),
			"\x02\x01\x21\x04\xff\xff\xff\x7f\xff\xff\x00\x00\x28\x00\x00\x00" + whole,
			robocache.ErrMalformed, "2147483647",
		},
		"lz4 that lies": {meta(
			map[string]any{"compressor": map[string]any{"id": "lz4"}},
		), "\xff\xff\xff\x7f" + whole, robocache.ErrMalformed, "2147483647"},
		"fill that does not fit": {meta(
			map[string]any{"dtype": "|u1", "fill_value": 300},
		), whole, robocache.ErrMalformed, "fill_value"},
		"no json": {"{", whole, robocache.ErrMalformed, "a/.zarray"},
	} {
		d, err := open(map[string]string{"a/.zarray": c.meta, "a/0.0": c.chunk, "a/0": c.chunk})
		if err == nil {
			if v := d.views["a"]; v != nil && v.f.Kind == robocache.KindText {
				_, err = d.Text(t.Context(), "a", []robocache.Row{{}})
			} else {
				_, err = row(d, 0)
			}
		}
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A missing chunk has the fill value. An array of an unsupported type is left out, and the
	// others open.
	d, err := open(
		map[string]string{
			"a/.zarray": meta(map[string]any{"fill_value": "NaN"}),
			"a/0.0":     whole,
			"b/.zarray": meta(map[string]any{"dtype": "<c8"}),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Info().Findings) != 1 || d.Info().Findings[0].Code != "array-skipped" {
		t.Error(d.Info().Findings)
	}
	if b, err := row(d, 3); err != nil || string(b) != "\x00\x00\xc0\x7f\x00\x00\xc0\x7f" {
		t.Errorf("% x %v", b, err)
	}
	if b, err := row(d, 2); err != nil || string(b) != whole[:8] {
		t.Errorf("% x %v", b, err)
	}
	// Ends that decrease, are beyond the data, or are not integers.
	ends := func(shape int, b string) map[string]string {
		return map[string]string{
			"data/a/.zarray": meta(nil),
			"data/a/0.0":     whole,
			"meta/episode_ends/.zarray": fmt.Sprintf(
				`{"zarr_format":2,"shape":[%d],"chunks":[%d],"dtype":"<i8","compressor":null,"fill_value":0,"order":"C","filters":null}`,
				shape,
				min(shape, 1000),
			),
			"meta/episode_ends/0": b,
		}
	}
	if _, err := open(ends(2,
		"\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00")); !errors.Is(err,
		robocache.ErrMalformed) {
		t.Error("ends that decrease:", err)
	}
	if _, err := open(ends(1<<40, "")); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Error("2^40 episodes:", err)
	}
	d, err = open(ends(2, "\x03\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00"))
	if err != nil || len(d.Info().Findings) != 1 || d.Info().Findings[0].Code != "short-stream" {
		t.Fatal(err)
	}
	if err := d.Gather(t.Context(), "observation.a", []robocache.Row{{Episode: 1, Index: 5}},
		make([]byte, 8)); !errors.Is(err, robocache.ErrMalformed) {
		t.Error("a row beyond the array:", err)
	}
	if err := d.Gather(t.Context(), "observation.a", []robocache.Row{{Episode: 0, Index: 2}},
		make([]byte, 8)); err != nil {
		t.Error("the others:", err)
	}
}

// TestZipOfBadNames checks that an archive with a member outside its root is an error.
func TestZipOfBadNames(t *testing.T) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, n := range []string{".zgroup", "../data/.zarray"} {
		m, _ := w.Create(n)
		_, _ = m.Write([]byte("{}"))
	}
	w.Close()
	m := storetest.NewMem("badzip")
	defer m.Drop()
	m.Put("x.zarr.zip", b.Bytes())
	if _, err := Open(t.Context(), "mem://badzip/x.zarr.zip", ten); !errors.Is(err,
		robocache.ErrMalformed) {
		t.Error(err)
	}
}

// FuzzSummary merges arbitrary plans and summaries. The result is a store or a typed error.
func FuzzSummary(f *testing.F) {
	const schema = `{"streams":[{"feature":{"key":"x","kind":"numeric","dtype":"float32","shape":[1]},"name":"x","shape":[1],"row":4,"per":4}],"timestamps":false,"root":{}}`
	f.Add(schema, `{"first_row":0,"ends":[2],"tasks":["a"],"exact":true}`)
	f.Add(
		strings.Replace(schema, `"per":4`, `"per":9223372036854775807`, 1),
		`{"first_row":0,"ends":[-5],"tasks":[]}`,
	)
	f.Add(strings.Replace(schema, `"row":4`, `"row":1099511627776`, 1), `{"first_row":0}`)
	f.Add(strings.Replace(schema, `"name":"x"`, `"name":"../../x"`, 1), `{"ends":[1,2,3]}`)
	f.Add(strings.Replace(schema, `false`, `true`, 1), `{"first_row":-1}`)
	f.Add(`{"streams":[{}]}`, `null`)
	f.Fuzz(func(t *testing.T, schema, summary string) {
		dir := t.TempDir()
		st, err := store.OpenWritable(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a/edges/data/x/0", "b/edges/data/x/0"} {
			if err := store.Put(t.Context(), st, name, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
		hostile.Typed(t, mergeShards(t.Context(), dir, []byte(schema), []robocache.ShardReport{
			{Episodes: 1, Frames: 2, Summary: []byte(summary), Dir: "a"},
			{
				Episodes: 1,
				Frames:   2,
				Summary:  []byte(strings.Replace(summary, `"first_row":0`, `"first_row":2`, 1)),
				Dir:      "b",
			},
		}))
	})
}
