package flags

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestWritten is flags.F1, F2 and F4.
func TestWritten(t *testing.T) {
	open := func(name string) robocache.Dataset {
		ds, err := robocache.Open(t.Context(), realdata.Path(t, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ds.Close() })
		return ds
	}
	ds := open("g1_h264_v30")
	f, err := New(t.Context(), ds)
	if err != nil {
		t.Fatal(err)
	}
	f.Flags = append(
		f.Flags,
		Flag{Episode: 1, Length: 20, Label: "<b>bad", Rows: []int{3, 9}},
		Flag{Episode: 0, Length: 20, Note: "dropped it"},
	)
	path := filepath.Join(t.TempDir(), "flags.json")
	for range 2 {
		if err := f.Write(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(t.Context(), path)
	if err != nil || !reflect.DeepEqual(got, f) || got.Flags[0].Episode != 0 {
		t.Errorf("%+v %v", got, err)
	}
	if err := got.Check(t.Context(), ds); err != nil {
		t.Error(err)
	}
	if err := got.Check(t.Context(), open("g1_h264_v30_bigdrift")); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Error(entries)
	}
}

// Versions are compared between states of one kind of storage only.
func TestSameFiles(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"file 1 2", "file 1 2", true},
		{"file 1 2", "file 1 3", false},
		{"file 1 2", "s3 1 3", true},
		{"file 1 2", "s3 2 2", false},
		{"file 1 2", "", true},
		{"", "", true},
		{"file 1 2", "x", false},
	} {
		if got := SameFiles(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %v", c.a, c.b, got)
		}
	}
}

func TestParse(t *testing.T) {
	f, err := Parse([]byte(" [3, 7]\n"))
	if err != nil || len(f.Flags) != 2 || f.Flags[1].Episode != 7 || f.Fingerprint != "" {
		t.Error(f, err)
	}
	for _, text := range []string{
		"",
		"{}",
		"[3.5]",
		`["a"]`,
		"[-1]",
		`{"robocache_flags": 2}`,
		`{"robocache_flags": 1, "flags": [{"episode_index": 0, "length": 5, "rows": [2, 6]}]}`,
		`{"robocache_flags": 1, "flags": [{"episode_index": 0, "rows": [2]}]}`,
		`{"robocache_flags": 1, "flags": [{"episode_index": 0, "rows": [2, 2]}]}`,
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("[1, 2]"))
	f.Add(
		[]byte(
			`{"robocache_flags": 1, "flags": [{"episode_index": 0, "length": 5, "rows": [2, 4]}]}`,
		),
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Parse(b)
		if err != nil {
			return
		}
		out, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(out); err != nil {
			t.Fatal(err)
		}
	})
}
