package derive_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/derive"
	"github.com/goatnote-inc/robocache/internal/tests/capabilities"
)

// stream returns a derived stream of n bytes in a file, of rows of one uint8.
func stream(t *testing.T, key string, n int) derive.Stream {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values")
	raw := make([]byte, n)
	for i := range raw {
		raw[i] = byte(i)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return derive.Stream{Key: key, DType: robocache.Uint8, Shape: []int{1}, File: file, Hash: "h"}
}

func rowCount(ds robocache.Dataset) (n int) {
	for e := range ds.Info().Episodes {
		n += ds.Len(e)
	}
	return n
}

func TestWrapPassesOnCapabilities(t *testing.T) {
	rules := map[string]capabilities.Rule{}
	for _, name := range capabilities.Names() {
		rules[name] = capabilities.Passes
	}
	for _, name := range []string{
		"GatherRagged", "LeaseFrames", "Valid", "Clocks", "TimesBy", "Message", "Rows", "Lacks",
	} {
		rules[name] = capabilities.Overrides
	}
	rules["Recording"], rules["Origin"] = capabilities.Clears, capabilities.Always
	capabilities.Check(t, rules, func(ds robocache.Dataset) robocache.Dataset {
		d, err := derive.Wrap(ds, []derive.Stream{stream(t, "x", rowCount(ds))}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

func TestRowsAreThoseOfTheFileInMemoryOrNot(t *testing.T) {
	for _, budget := range []int64{0, 1} {
		ds := capabilities.New()
		s := stream(t, capabilities.State, ds.Len(1)) // replaces a stream
		s.Positions = []int{1}
		d, err := derive.Wrap(ds, []derive.Stream{s}, budget)
		if err != nil {
			t.Fatal(err)
		}
		rows := robocache.RowsOf(1, 0, ds.Len(1))
		rows = append(rows, rows[0], rows[len(rows)-1])
		got := make([]byte, len(rows))
		if err := d.Gather(t.Context(), s.Key, rows, got); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			if got[i] != byte(r.Index) {
				t.Errorf("budget %d: row %v is %d", budget, r, got[i])
			}
		}
		for _, bad := range []robocache.Row{{Episode: 0}, {Episode: 1, Index: ds.Len(1)}} {
			if d.Gather(t.Context(), s.Key, []robocache.Row{bad}, got[:1]) == nil {
				t.Errorf("row %v was read", bad)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrongStreamsAreRefused(t *testing.T) {
	ds := capabilities.New()
	good := stream(t, "x", rowCount(ds))
	for name, change := range map[string]func(s *derive.Stream){
		"size":     func(s *derive.Stream) { s.Shape = []int{2} },
		"shape":    func(s *derive.Stream) { s.Shape = []int{0} },
		"text":     func(s *derive.Stream) { s.DType = robocache.String },
		"hash":     func(s *derive.Stream) { s.Hash = "" },
		"file":     func(s *derive.Stream) { s.File += "x" },
		"position": func(s *derive.Stream) { s.Positions = []int{99} },
	} {
		bad := good
		change(&bad)
		_, err := derive.Wrap(ds, []derive.Stream{bad}, 0)
		if err == nil || errors.Is(err, robocache.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := derive.Wrap(ds, []derive.Stream{good, good}, 0); err == nil {
		t.Error("the same key twice")
	}
}
