package h5

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// oracleObject is an object as h5py reads it: see data/make/make_hdf5.py.
type oracleObject struct {
	Attrs  map[string]any  `json:"attrs"`
	Group  []string        `json:"group"`
	Shape  []int64         `json:"shape"`
	DType  string          `json:"dtype"`
	SHA    string          `json:"sha256"`
	Text   string          `json:"sha256_u32len"`
	Empty  bool            `json:"empty"`
	Vlen   [][]json.Number `json:"vlen"`
	Fields map[string]struct {
		SHA string `json:"sha256"`
	} `json:"fields"`
}

func openFile(t testing.TB, path string, budget int64) *File {
	t.Helper()
	s, err := store.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); store.Close(s) })
	f, err := Open(t.Context(), r, filepath.Base(path), NewCache(budget))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func digest(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// checkObject compares an object with the oracle.
func checkObject(t *testing.T, f *File, path string, want *oracleObject) {
	t.Helper()
	ctx := t.Context()
	o, err := f.Lookup(ctx, path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	checkAttributes(t, o, path, want.Attrs)
	if want.Group != nil {
		links, err := o.Links(ctx)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		var names []string
		for _, l := range links {
			names = append(names, l.Name)
		}
		expected := slices.Clone(want.Group)
		slices.Sort(expected)
		if !slices.Equal(names, expected) {
			t.Errorf("%s: %d links, want %d", path, len(names), len(expected))
		}
		return
	}
	d, err := o.Dataset(ctx, path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	if want.Empty {
		if !d.Null {
			t.Errorf("%s: not null", path)
		}
		return
	}
	switch {
	case want.Vlen != nil:
		got, err := d.Bytes(ctx, 0, d.Rows())
		if err != nil || len(got) != len(want.Vlen) {
			t.Errorf("%s: %v", path, err)
			return
		}
		for i, b := range got {
			var nums []string
			for ; len(b) > 0; b = b[d.Type.Base.Size:] {
				v := robocache.Float64s(nil, d.Type.Base.DType, b[:d.Type.Base.Size])
				nums = append(nums, fmt.Sprint(v[0]))
			}
			var exp []string
			for _, n := range want.Vlen[i] {
				exp = append(exp, n.String())
			}
			if !slices.Equal(nums, exp) {
				t.Errorf("%s[%d]: %v, want %v", path, i, nums, exp)
			}
		}
	case want.Text != "":
		got, err := d.Bytes(ctx, 0, d.Rows())
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		h := sha256.New()
		for _, b := range got {
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
			h.Write(b)
		}
		if hex.EncodeToString(h.Sum(nil)) != want.Text {
			t.Errorf("%s: other text: %.80q", path, got)
		}
	default:
		raw := make([]byte, d.Rows()*d.RowBytes())
		if err := d.ReadRows(ctx, 0, d.Rows(), raw); err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		shape := d.Shape
		if _, dims, ok := d.Type.Numeric(); ok {
			for _, n := range dims {
				shape = append(slices.Clone(shape), int64(n))
			}
		}
		if len(shape) == 0 && len(want.Shape) == 1 {
			shape = []int64{1}
		}
		if !slices.Equal(shape, want.Shape) && len(shape)+len(want.Shape) > 0 {
			t.Errorf("%s: shape %v, want %v", path, shape, want.Shape)
		}
		if want.Fields == nil {
			if digest(raw) != want.SHA {
				t.Errorf("%s: other bytes", path)
			}
			return
		}
		for _, m := range d.Type.Fields {
			var col []byte
			for at := 0; at < len(raw); at += d.Type.Size {
				col = append(col, raw[at+m.Offset:at+m.Offset+m.Type.Size]...)
			}
			if digest(col) != want.Fields[m.Name].SHA {
				t.Errorf("%s.%s: other bytes", path, m.Name)
			}
		}
	}
}

// attrValue returns the value of an attribute in the form that the oracle uses.
func attrValue(ctx context.Context, a *Attribute) (any, error) {
	if a.Null {
		return map[string]any{"empty": ""}, nil
	}
	var list []any
	scalar := len(a.Shape) == 0
	switch {
	case a.Type.Class == Text || a.Type.Class == Varying && a.Type.IsText:
		s, err := a.Strings(ctx)
		if err != nil {
			return nil, err
		}
		for _, v := range s {
			list = append(list, v)
		}
	case a.Type.DType == robocache.Bool && scalar:
		v, _ := a.Int()
		return v != 0, nil
	case a.Type.Class == Varying:
		return nil, nil
	default:
		dt, _, ok := a.Type.Numeric()
		if !ok {
			return nil, fmt.Errorf("type %s", a.Type)
		}
		for _, v := range robocache.Float64s(nil, dt, a.Raw()) {
			list = append(list, v)
		}
	}
	if scalar && len(list) == 1 {
		return list[0], nil
	}
	return list, nil
}

func checkAttributes(t *testing.T, o *Object, path string, want map[string]any) {
	t.Helper()
	attrs, err := o.Attributes(t.Context())
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	if len(attrs) != len(want) {
		t.Errorf("%s: %d attributes, want %d", path, len(attrs), len(want))
	}
	for i := range attrs {
		a := &attrs[i]
		got, err := attrValue(t.Context(), a)
		if err != nil {
			t.Errorf("%s@%s: %v", path, a.Name, err)
			continue
		}
		w := want[a.Name]
		if m, ok := w.(map[string]any); ok {
			if b, ok := m["bytes"]; ok {
				w = b
			} else {
				m["empty"] = ""
			}
		}
		if l, ok := w.([]any); ok { // strings of arrays are bytes or text in the oracle
			for i, v := range l {
				if m, ok := v.(map[string]any); ok {
					l[i] = m["bytes"]
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(w) {
			t.Errorf("%s@%s: %.200v, want %.200v", path, a.Name, got, w)
		}
	}
}

func readOracle(t *testing.T, path string) map[string]*oracleObject {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Objects map[string]*oracleObject `json:"objects"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o.Objects
}

// TestOracles compares every object of the shared files with h5py (h5.H1), for several cache
// budgets (h5.H6).
func TestOracles(t *testing.T) {
	for _, set := range []string{"hdf5_features", "robomimic_like", "aloha_like"} {
		dir := realdata.Path(t, set)
		files, _ := filepath.Glob(filepath.Join(dir, "*.hdf5"))
		if len(files) == 0 {
			t.Fatal("no files in", dir)
		}
		for _, path := range files {
			name := strings.TrimSuffix(filepath.Base(path), ".hdf5")
			for _, budget := range []int64{64 << 20, 1 << 20} {
				t.Run(fmt.Sprintf("%s/%s/%d", set, name, budget), func(t *testing.T) {
					f := openFile(t, path, budget)
					for object, want := range readOracle(t, filepath.Join(dir, "oracle", name+
						".json")) {
						checkObject(t, f, object, want)
					}
					if s := f.cache.Stats(); s.Bytes > s.Budget {
						t.Errorf("%+v", s)
					}
				})
			}
		}
	}
}

// TestLinks follows soft links and expects errors that name dangling and external links (h5.H5).
func TestLinks(t *testing.T) {
	for _, v := range []string{"earliest", "v108", "latest"} {
		f := openFile(t, realdata.Path(t, "hdf5_features/"+v+".hdf5"), 1<<20)
		soft, err := f.Lookup(t.Context(), "links/soft")
		if err != nil {
			t.Fatal(err)
		}
		hard, err := f.Lookup(t.Context(), "/links/hard")
		if err != nil || hard.Address() != soft.Address() {
			t.Error("the soft link leads elsewhere", err)
		}
		if _,
			err = f.Lookup(t.Context(), "links/dangling"); !errors.Is(err, robocache.ErrNotFound) {
			t.Error(err)
		}
		if _, err = f.Lookup(t.Context(), "links/external"); !errors.Is(err,
			robocache.ErrUnsupported) || !strings.Contains(err.Error(), "other.hdf5") {
			t.Error(err)
		}
	}
}
