package h5

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// written is a data set that was written, and its contents.
type written struct {
	path  string
	spec  Spec
	data  []byte
	texts []string
}

// writeSample writes a file that uses every feature of the writer.
func writeSample(t testing.TB, out *os.File) (sets []written, attrs map[string]any) {
	rng := rand.New(rand.NewPCG(5, 6))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := NewWriter(out)
	attrs = map[string]any{
		"text":  "grüße\nan alle",
		"empty": "",
		"long":  strings.Repeat("<mujoco> ", 9000),
		"whole": int64(-5),
		"plain": 17,
		"real":  2.5,
		"yes":   true,
		"texts": []string{
			"a",
			"",
			"ccc",
		},
		"wholes": []int64{1, -2, 1 << 60},
		"reals":  []float64{0.5, -1},
		"ключ":   "значение",
	}
	for _, k := range slices.Sorted(maps(attrs)) {
		must(w.Root().Attribute(k, attrs[k]))
	}
	add := func(g *GroupWriter, prefix, name string, spec Spec) {
		s := written{path: prefix + name, spec: spec}
		d, err := g.Dataset(name, spec)
		must(err)
		rows := int64(1)
		if len(spec.Shape) > 0 {
			rows = spec.Shape[0]
		}
		if d.spec.Fixed > 0 || d.typeMessage[0]&15 == uint8(Varying) {
			for i := range rows {
				s.texts = append(s.texts, strings.Repeat("é"[:i%3/2*2], int(i%5))+fmt.Sprint(i))
			}
			must(d.WriteTexts(s.texts[:rows/2]))
			must(d.WriteTexts(s.texts[rows/2:]))
		} else {
			s.data = make([]byte, rows*d.rowBytes)
			v := byte(0)
			for i := range s.data {
				v += byte(rng.IntN(3))
				s.data[i] = v
				if spec.DType == robocache.Bool {
					s.data[i] = v & 1
				}
			}
			for at := int64(0); at < int64(len(s.data)); {
				n := min((1+rng.Int64N(4))*d.rowBytes, int64(len(s.data))-at)
				must(d.Write(s.data[at : at+n]))
				at += n
			}
		}
		must(d.Attribute("unit", "m"))
		must(d.Close())
		sets = append(sets, s)
	}
	numbers, err := w.Root().Group("numbers")
	must(err)
	for d := robocache.Bool; d <= robocache.Float64; d++ {
		if d != robocache.BFloat16 {
			add(numbers, "numbers/", d.String(), Spec{DType: d, Shape: []int64{11, 3}})
		}
	}
	must(numbers.Attribute("of", "all dtypes"))
	must(numbers.Close())
	shapes, err := w.Root().Group("shapes")
	must(err)
	for i, s := range [][]int64{nil, {0}, {0, 4}, {1}, {7}, {5, 2, 3, 2}} {
		add(shapes, "shapes/", fmt.Sprintf("plain%d", i), Spec{DType: robocache.Float32, Shape: s})
		if s == nil {
			continue
		}
		for k, c := range []Spec{
			{ChunkRows: 1},
			{ChunkRows: 3},
			{ChunkRows: 99},
			{ChunkRows: 2, Deflate: 4},
			{ChunkRows: 2, Shuffle: true},
			{ChunkRows: 99, Deflate: 9, Shuffle: true},
			{ChunkRows: 99, Shuffle: true},
		} {
			c.DType, c.Shape = robocache.Int32, s
			add(shapes, "shapes/", fmt.Sprintf("chunk%d-%d", i, k), c)
		}
	}
	must(shapes.Close())
	many, err := w.Root().Group("many")
	must(err)
	for _, n := range []int64{63, 64, 65, 128, 129, 5000} {
		add(
			many,
			"many/",
			fmt.Sprint(n),
			Spec{DType: robocache.Uint8, Shape: []int64{n, 2, 2}, ChunkRows: 1, Deflate: 1},
		)
	}
	must(many.Close())
	texts, err := w.Root().Group("texts")
	must(err)
	add(texts, "texts/", "varying", Spec{DType: robocache.String, Shape: []int64{700}})
	add(texts, "texts/", "fixed", Spec{Fixed: 12, Shape: []int64{9}})
	add(
		texts,
		"texts/",
		"names/with dots.and-ä"[6:],
		Spec{DType: robocache.JSON, Shape: []int64{3}},
	)
	add(texts, "texts/", strings.Repeat("n", 300), Spec{DType: robocache.Int8, Shape: []int64{3}})
	must(texts.Close())
	thousands, err := w.Root().Group("thousands")
	must(err)
	for i := range 3000 {
		g, err := thousands.Group(fmt.Sprintf("demo_%d", i))
		must(err)
		must(g.Attribute("num_samples", i))
		must(g.Attribute("task", fmt.Sprintf("task %d", i%7)))
		must(g.Close())
	}
	must(thousands.Close())
	must(w.Close())
	info, err := out.Stat()
	must(err)
	if info.Size() > w.Size() {
		t.Errorf("the file has %d bytes, the writer counted %d", info.Size(), w.Size())
	}
	return sets, attrs
}

func maps(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func sampleFile(t testing.TB) (path string, sets []written, attrs map[string]any) {
	path = filepath.Join(t.TempDir(), "sample.hdf5")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	sets, attrs = writeSample(t, out)
	return path, sets, attrs
}

// memory is a file in memory.
type memory struct{ b []byte }

func (m *memory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > int64(len(m.b)) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "read", Msg: "beyond the end"}
	}
	copy(p, m.b[off:])
	return nil
}
func (m *memory) Size() int64     { return int64(len(m.b)) }
func (m *memory) Version() string { return "1" }
func (m *memory) Close() error    { return nil }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p); n > len(m.b) {
		m.b = append(m.b, make([]byte, n-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

// TestWrittenIsRead reads back everything that was written.
func TestWrittenIsRead(t *testing.T) {
	ctx := context.Background()
	path, sets, attrs := sampleFile(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(ctx, &memory{b}, "sample.hdf5", NewCache(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root, err := f.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range attrs {
		a, err := root.Attribute(ctx, k)
		if err != nil || a == nil {
			t.Fatalf("%s: %v", k, err)
		}
		switch v := want.(type) {
		case string:
			if got, ok, err := a.Text(ctx); err != nil || !ok || got != v {
				t.Errorf("%s: %d bytes %v %v", k, len(got), ok, err)
			}
		case []string:
			if got, err := a.Strings(ctx); err != nil || !slices.Equal(got, v) {
				t.Errorf("%s: %q %v", k, got, err)
			}
		case int64:
			if got, ok := a.Int(); !ok || got != v {
				t.Errorf("%s: %d", k, got)
			}
		case float64:
			if got, ok := a.Float(); !ok || got != v {
				t.Errorf("%s: %v", k, got)
			}
		}
	}
	for _, s := range sets {
		o, err := f.Lookup(ctx, s.path)
		if err != nil {
			t.Fatalf("%s: %v", s.path, err)
		}
		d, err := o.Dataset(ctx, s.path)
		if err != nil {
			t.Fatalf("%s: %v", s.path, err)
		}
		if !slices.Equal(d.Shape, s.spec.Shape) && len(s.spec.Shape) > 0 {
			t.Errorf("%s: shape %v, not %v", s.path, d.Shape, s.spec.Shape)
		}
		if s.texts != nil {
			got, err := d.Bytes(ctx, 0, d.Rows())
			if err != nil {
				t.Fatalf("%s: %v", s.path, err)
			}
			for i, b := range got {
				if string(b) != s.texts[i] {
					t.Fatalf("%s: text %d is %q, not %q", s.path, i, b, s.texts[i])
				}
			}
			continue
		}
		got := make([]byte, len(s.data))
		if len(s.spec.Shape) > 0 {
			if err := d.ReadRows(ctx, 0, d.Rows(), got); err != nil {
				t.Fatalf("%s: %v", s.path, err)
			}
			if !bytes.Equal(got, s.data) {
				t.Errorf("%s: other bytes", s.path)
			}
		}
	}
	thousands, err := f.Lookup(ctx, "thousands")
	if err != nil {
		t.Fatal(err)
	}
	if links, err := thousands.Links(ctx); err != nil || len(links) != 3000 {
		t.Errorf("%d groups in the thousands, %v", len(links), err)
	}
}

// TestWrittenIsReadByH5py checks that h5py (HDF5 2.0) and h5dump (1.10) read the file completely
// (h5.W1).
func TestWrittenIsReadByH5py(t *testing.T) {
	path, sets, attrs := sampleFile(t)
	t.Run("h5py", func(t *testing.T) {
		python := realdata.Python(t, "h5py")
		cmd := exec.Command(python, "testdata/dump.py", path)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v %s", err, stderr.String())
		}
		var seen map[string]struct {
			Attrs   map[string]any
			Shape   []int64
			DType   string
			Chunks  []int64
			Gzip    *int
			Shuffle bool
			Text    []string
			SHA256  string
		}
		if err := json.Unmarshal(out, &seen); err != nil {
			t.Fatal(err)
		}
		for k, v := range attrs {
			want, _ := json.Marshal(v)
			var through any
			_ = json.Unmarshal(want, &through)
			if got := seen["/"].Attrs[k]; !reflect.DeepEqual(got, through) {
				t.Errorf("attribute %s: %.100v, not %.100v", k, got, through)
			}
		}
		for _, s := range sets {
			o, ok := seen[s.path]
			if !ok || o.Attrs["unit"] != "m" {
				t.Errorf("%s is not there, or has no unit: %v", s.path, o.Attrs)
				continue
			}
			if s.texts != nil {
				if !slices.Equal(o.Text, s.texts) {
					t.Errorf("%s: %q", s.path, o.Text)
				}
				continue
			}
			if sum := sha256.Sum256(s.data); o.SHA256 != hex.EncodeToString(sum[:]) ||
				o.DType != s.spec.DType.String() || !slices.Equal(o.Shape, s.spec.Shape) {
				t.Errorf(
					"%s: %s %v, other bytes or form than %s %v",
					s.path,
					o.DType,
					o.Shape,
					s.spec.DType,
					s.spec.Shape,
				)
			}
			if (o.Gzip != nil) != (s.spec.Deflate > 0) ||
				o.Gzip != nil && *o.Gzip != s.spec.Deflate ||
				o.Shuffle != s.spec.Shuffle ||
				(o.Chunks != nil) != (s.spec.ChunkRows > 0) {
				t.Errorf(
					"%s: gzip %v, shuffle %v, chunks %v, not %+v",
					s.path,
					o.Gzip,
					o.Shuffle,
					o.Chunks,
					s.spec,
				)
			}
		}
		if len(seen) != 3000+5+1+len(sets) {
			t.Errorf("%d objects", len(seen))
		}
	})
	t.Run("h5dump", func(t *testing.T) {
		h5dump, err := exec.LookPath("h5dump")
		if err != nil {
			t.Skip("no h5dump (hdf5-tools)")
		}
		out, err := exec.Command(h5dump, path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %.2000s", err, out[max(0, len(out)-2000):])
		}
		if n := strings.Count(string(out), "DATASET \""); n != len(sets) ||
			strings.Contains(string(out), "unable") {
			t.Errorf("h5dump shows %d data sets of %d", n, len(sets))
		}
	})
}

func TestWriterSame(t *testing.T) {
	a, _, _ := sampleFile(t)
	b, _, _ := sampleFile(t)
	x, _ := os.ReadFile(a)
	y, _ := os.ReadFile(b)
	if !bytes.Equal(x, y) {
		t.Error("the same calls gave other bytes (W3)")
	}
}

func TestWriterMisuse(t *testing.T) {
	w := NewWriter(&memory{})
	g, err := w.Root().Group("g")
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{DType: robocache.Int8, Shape: []int64{4}}
	d, err := g.Dataset("d", spec)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"twice": func() error { _, err := g.Dataset("d", spec); return err }(),
		"slash": func() error { _, err := g.Group("a/b"); return err }(),
		"dot":   func() error { _, err := g.Group("."); return err }(),
		"negative": func() error {
			_, err := g.Dataset(
				"n",
				Spec{DType: robocache.Int8, Shape: []int64{-1}},
			)
			return err
		}(),
		"packed whole": func() error {
			_, err := g.Dataset("p", Spec{DType: robocache.Int8, Shape: []int64{4}, Deflate: 3})
			return err
		}(),
		"too much":   d.Write(make([]byte, 5)),
		"early":      d.Close(),
		"open child": g.Close(),
		"text":       d.WriteTexts([]string{"x"}),
		"attribute":  g.Attribute("x", struct{}{}),
	} {
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := g.Attribute("big", make([]int64, 9000)); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("a large attribute: %v", err)
	}
	if _, err := g.Dataset("huge",
		Spec{DType: robocache.Float64, Shape: []int64{1 << 40, 1 << 40}}); !errors.Is(err,
		robocache.ErrResourceLimit) {
		t.Errorf("a huge shape: %v", err)
	}
	if err := errors.Join(d.Write(make([]byte, 4)), d.Close(), g.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Root().Group("late"); err == nil {
		t.Error("a group after the end")
	}
}
