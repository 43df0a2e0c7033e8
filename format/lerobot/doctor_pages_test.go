package lerobot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/store"
)

// spoil overwrites the first page of a column chunk.
func spoil(t *testing.T, dir, name, column string, with func(page []byte)) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	r, err := s.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pq.Open(t.Context(), r, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	top := f.Column(column)
	if top == nil {
		t.Fatalf("%s has no column %s", name, column)
	}
	k, _ := f.Chunk(0, top.Leaves(nil)[0])
	p := filepath.Join(dir, name)
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	with(b[k.Offset : k.Offset+k.Size])
	if err := os.Remove(p); err != nil { // it is a link to the shared file
		t.Fatal(err)
	}
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// named reports whether an error finding names the file, row group and column.
func named(found []robocache.Finding, name, column string) bool {
	for _, f := range found {
		if f.Severity == robocache.SeverityError && f.Where["file"] == name &&
			f.Where["row_group"] == 0 &&
			fmt.Sprint(f.Where["column"]) == column {
			return true
		}
	}
	return false
}

type extraRow struct {
	Word  string  `parquet:"word"`
	Other []int64 `parquet:"other,list"`
}

// TestUnreadColumns checks that damage in columns that RoboCache does not read is found. Tables in
// meta are always checked, data files with the option Deep.
func TestUnreadColumns(t *testing.T) {
	zero := func(page []byte) { clear(page) }
	header := func(page []byte) { page[0] ^= 0xff }
	text := func(page []byte) {
		if i := bytes.LastIndex(page, []byte("pear")); i < 0 {
			t.Fatal("the text is packed")
		} else {
			page[i] = 0xff
		}
	}
	var rows []extraRow
	for i := range 50 {
		rows = append(rows, extraRow{[]string{"apple", "pear"}[i%2], []int64{int64(i), 2}[:i%3]})
	}
	for what, c := range map[string]struct {
		column string
		with   func([]byte)
	}{"zeroed": {"other", zero}, "header": {"word", header}, "not UTF-8": {"word", text}} {
		dir := newSynth(3).write(t)
		name := "meta/extra.parquet"
		writeRows(t, filepath.Join(dir, name), rows, 100)
		if found, err := mustOpen(t, dir).Diagnose(t.Context(), robocache.DiagnoseOptions{}); err !=
			nil || named(found, name, c.column) {
			t.Errorf("%s: whole: %v, %v", what, found, err)
		}
		spoil(t, dir, name, c.column, c.with)
		found, err := mustOpen(t, dir).Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil || !named(found, name, c.column) {
			t.Errorf("%s: not found: %v, %v", what, found, err)
		}
	}
}

func TestUnreadColumnsOfRealSets(t *testing.T) {
	for name, column := range map[string]string{
		"meta/episodes/chunk-000/file-000.parquet": "stats/action/mean",
		"meta/tasks.parquet":                       "task_index",
	} {
		dir := copySet(t, "g1_h264_v30_bigdrift")
		d := mustOpen(t, dir)
		found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Deep: true})
		if err != nil || named(found, name, column) {
			t.Errorf("%s: whole: %v, %v", name, found, err)
		}
		if name == "meta/tasks.parquet" {
			continue // Open reads all of its columns
		}
		spoil(t, dir, name, column, func(page []byte) { clear(page[len(page)/2:]) })
		if found, err = mustOpen(t, dir).Diagnose(t.Context(), robocache.DiagnoseOptions{}); err !=
			nil || !named(found, name, column) {
			t.Errorf("%s: not found: %v, %v", name, found, err)
		}
	}
}

// TestDeep checks damage in a column that info.json does not declare. Other readers read the whole
// file; here only the option Deep does.
func TestDeep(t *testing.T) {
	dir := newSynth(3).write(t)
	name, info := "data/chunk-000/file-000.parquet", filepath.Join(dir, "meta/info.json")
	b, err := os.ReadFile(info)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	delete(m["features"].(map[string]any), "observation.state")
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(info, b, 0o644); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir, name, "observation.state", func(page []byte) { page[0] ^= 0xff })
	for _, deep := range []bool{false, true} {
		found, err := mustOpen(t, dir).Diagnose(t.Context(), robocache.DiagnoseOptions{Deep: deep})
		if err != nil || named(found, name, "observation.state") != deep {
			t.Errorf("deep %v: %v, %v", deep, found, err)
		}
	}
}

// TestWidthLie checks that a declared width that contradicts every row is reported as a fault of
// info.json.
func TestWidthLie(t *testing.T) {
	s := newSynth(3, 4)
	dir := s.write(t)
	p := filepath.Join(dir, "meta/info.json")
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []string{"4", "2"} {
		lie := strings.Replace(
			string(b),
			`"observation.state": {"dtype": "float32", "shape": [3]`,
			`"observation.state": {"dtype": "float32", "shape": [`+width+`]`,
			1,
		)
		if lie == string(b) {
			t.Fatalf("nothing replaced in %s", b)
		}
		if err := os.WriteFile(p, []byte(lie), 0o644); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, dir)
		err = d.Gather(
			t.Context(),
			"observation.state",
			rowsOf(d, 1)[:1],
			make([]byte, d.Info().Feature("observation.state").RowBytes()),
		)
		wantError(
			t,
			err,
			robocache.ErrMalformed,
			"meta/info.json",
			"rows of the data have 3 values",
			width+" are declared",
		)
		var e *robocache.Error
		if strings.Contains(err.Error(), "parquet") || !errors.As(err, &e) ||
			e.Where["row_group"] != nil {
			t.Errorf("the data file is blamed: %v", err)
		}
		found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprint(found), "rows of the data have 3 values") {
			t.Errorf("doctor: %v", found)
		}
	}
}

// TestFooterOfMetadata checks bytes of the footer that only other readers use.
func TestFooterOfMetadata(t *testing.T) {
	name := "meta/episodes/chunk-000/file-000.parquet"
	whole, err := os.ReadFile(filepath.Join(copySet(t, "g1_h264_v30_bigdrift"), name))
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]int{
		"Arrow schema": bytes.LastIndex(whole, []byte("ARROW:schema")) + 200,
		"name":         bytes.Index(whole, []byte("stats/action/mean")) + 3,
	} {
		dir := copySet(t, "g1_h264_v30_bigdrift")
		p := filepath.Join(dir, name)
		b := bytes.Clone(whole)
		b[at] ^= 0xff
		if err := os.Remove(p); err != nil { // it is a link to the shared file
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
		found, err := mustOpen(t, dir).Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil || !strings.Contains(fmt.Sprint(found), "footer: ") {
			t.Errorf("%s: not found: %v, %v", what, found, err)
		}
	}
}
