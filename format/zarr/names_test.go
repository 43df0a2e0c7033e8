package zarr

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// Two entries of consolidated metadata with one path are an error: one would hide the other, and
// both would share cache entries.
func TestTwoArraysOfOneName(t *testing.T) {
	one := fmt.Sprintf(arrayMetaV2, "null", "null")
	_, err := readTree(
		t.Context(),
		mem(
			map[string]string{
				".zmetadata": `{"metadata": {"data/x/.zarray": ` + one + `, "data//x/.zarray": ` +
					one + `, "data/y/.zarray": ` + one + `}}`,
			},
		),
		1<<20,
	)
	if !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}

// An array without dimensions is not a stream, in replay buffers and in other stores.
func TestSingleValues(t *testing.T) {
	const meta = `{"zarr_format":2,"shape":[%s],"chunks":[%[1]s],"dtype":"<i8","compressor":null,"fill_value":3,"order":"C","filters":null}`
	for _, buffer := range []bool{false, true} {
		dir := t.TempDir()
		files := map[string]string{
			".zgroup":             `{"zarr_format":2}`,
			"data/.zgroup":        `{"zarr_format":2}`,
			"data/one/.zarray":    fmt.Sprintf(meta, ""),
			"data/action/.zarray": fmt.Sprintf(meta, "3"),
		}
		if buffer {
			files["meta/.zgroup"], files["meta/episode_ends/.zarray"] = `{"zarr_format":2}`, fmt.Sprintf(
				meta,
				"1",
			)
		}
		for name, text := range files {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		d := open(t, dir, ten)
		if d.Len(0) != 3 ||
			!slices.ContainsFunc(
				d.Info().Findings,
				func(f robocache.Finding) bool {
					return f.Code == "array-skipped" && f.Where["file"] == "data/one"
				},
			) {
			t.Errorf("buffer %t: %d rows, %+v", buffer, d.Len(0), d.Info().Findings)
		}
	}
}
