package zarr

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

type oracleArray struct {
	Shape  []int
	Chunks []int
	DType  string
	SHA256 string
	JSON   []any
	Error  string `json:"reader_error"`
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// all returns all data of an array.
func all(t testing.TB, d *tree, a *Array) []byte {
	t.Helper()
	rows := make([]int, a.Shape[0])
	for i := range rows {
		rows[i] = i
	}
	b := make([]byte, len(rows)*a.rowBytes)
	if err := d.gatherRows(t.Context(), a, rows, b); err != nil {
		t.Fatal(a.Path, err)
	}
	return b
}

func openTree(t testing.TB, uri string) *tree {
	t.Helper()
	s, err := openStore(t.Context(), uri, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := readTree(t.Context(), s, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(d.st) })
	return d
}

// compare compares every array of a store with the oracle.
func compare(t *testing.T, uri string, arrays map[string]oracleArray) {
	d := openTree(t, uri)
	for name, want := range arrays {
		a := d.arrays[name]
		if a == nil {
			t.Errorf("%s is missing: %v", name, d.findings)
			continue
		}
		if !slices.Equal(a.Shape, want.Shape) {
			t.Errorf("%s: shape %v, not %v", name, a.Shape, want.Shape)
		}
		if want.JSON == nil {
			b := all(t, d, a)
			if want.DType == "|b1" || want.SHA256 != "" {
				if sum(b) != want.SHA256 {
					t.Errorf("%s differs", name)
				}
			}
			continue
		}
		if len(a.Shape) > 1 {
			rows := make([]int, a.Shape[0])
			for i := range rows {
				rows[i] = i
			}
			if !a.Text {
				all(t, d, a)
			}
			continue
		}
		rows := make([]int, a.Shape[0])
		for i := range rows {
			rows[i] = i
		}
		got := make([]string, len(rows))
		if err := d.readTexts(t.Context(), a, rows, got); err != nil {
			t.Error(name, err)
			continue
		}
		for i, w := range want.JSON {
			if fmt.Sprint(w) != got[i] {
				t.Errorf("%s[%d] = %q, not %q", name, i, got[i], w)
			}
		}
	}
}

// TestConformance checks zarr.A2 on the arrays of zarrita.js, in folders and zip files.
func TestConformance(t *testing.T) {
	for version, stores := range map[string]map[string]string{
		"v2": {
			"data.zarr":  "data.zarr",
			"parent.zip": "data.zipped_from_parent.zarr.zip",
			"within.zip": "data.zipped_from_within.zarr.zip",
		},
		"v3": {
			"data.zarr":        "data.zarr",
			"parent.zip":       "data.zipped_from_parent.zarr.zip",
			"within.zip":       "data.zipped_from_within.zarr.zip",
			"uncompressed.zip": "data.uncompressed.zarr.zip",
		},
	} {
		dir := realdata.Path(t, "zarr")
		b, err := os.ReadFile(filepath.Join(dir, "oracle", version+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]json.RawMessage
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatal(err)
		}
		for name, file := range stores {
			t.Run(version+"/"+name, func(t *testing.T) {
				var s struct{ Arrays map[string]oracleArray }
				if err := json.Unmarshal(o[name], &s); err != nil {
					t.Fatal(err)
				}
				if len(s.Arrays) < 30 {
					t.Fatal(len(s.Arrays), "arrays in the oracle")
				}
				compare(t, filepath.Join(dir, version, file), s.Arrays)
			})
		}
	}
}

// TestReplayBuffer checks zarr.A2 on diffusion_policy's layout.
func TestReplayBuffer(t *testing.T) {
	dir := realdata.Path(t, "diffusion_policy_zarr")
	b, err := os.ReadFile(filepath.Join(dir, "oracle/arrays.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"dir": "replay_buffer.zarr",
		"zip": "replay_buffer.zarr.zip",
	} {
		var s struct{ Arrays map[string]oracleArray }
		if err := json.Unmarshal(o[name], &s); err != nil || len(s.Arrays) != 4 {
			t.Fatal(name, err, len(s.Arrays))
		}
		compare(t, filepath.Join(dir, file), s.Arrays)
	}
}
