package hdf5_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/internal/tests/cases"
)

func openFindings(t *testing.T, path string) map[string]robocache.Finding {
	t.Helper()
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	out := map[string]robocache.Finding{}
	for _, f := range ds.Info().Findings {
		out[f.Code] = f
	}
	return out
}

// TestUnreadFiles checks that videos next to HDF5 files are reported, for a folder and for a single
// file.
func TestUnreadFiles(t *testing.T) {
	dir := cases.Make(t, "H07", "same", "H07")
	f := openFindings(t, dir)["unread-files"]
	if f.Count != 2 || f.Severity != robocache.SeverityWarning ||
		!strings.Contains(f.Message, "0.mp4, 1.mp4") {
		t.Errorf("%+v", f)
	}
	if f := openFindings(t, filepath.Join(dir, "1.hdf5"))["unread-files"]; f.Count != 1 ||
		f.Where["file"] != "1.mp4" {
		t.Errorf("%+v", f)
	}
	if f, ok := openFindings(t, cases.Make(t, "H07", "novideo", "none"))["unread-files"]; ok {
		t.Errorf("%+v", f)
	}
}

// writeFile writes an HDF5 file. behind is the number of bytes after the end in its superblock.
func writeFile(t *testing.T, path string, fill func(g *h5.GroupWriter) error, behind int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := h5.NewWriter(f)
	if err := fill(w.Root()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(w.Size() + int64(behind)); err != nil {
		t.Fatal(err)
	}
}

// TestNoDemos expects a finding for a folder of files without demos, and one for a file that its
// writer has not closed.
func TestNoDemos(t *testing.T) {
	dir := t.TempDir()
	empty := func(g *h5.GroupWriter) error {
		data, err := g.Group("data")
		if err != nil {
			return err
		}
		return data.Close()
	}
	writeFile(t, filepath.Join(dir, "a.hdf5"), empty, 0)
	writeFile(t, filepath.Join(dir, "b.hdf5"), empty, 4096)
	found := openFindings(t, dir)
	if f := found["no-demos"]; f.Severity != robocache.SeverityError ||
		!strings.Contains(f.Message, "demos") {
		t.Errorf("%+v", f)
	}
	if f := found["not-closed"]; f.Where["file"] != "b.hdf5" {
		t.Errorf("%+v", f)
	}
}
