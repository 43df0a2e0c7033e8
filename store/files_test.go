package store

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestFiles checks that entries that are not regular files are listed with the error of Open, and
// that links that may hide a folder are listed (store.T1).
func TestFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, name := range []string{"a.dat", "named.dat/b.dat", "empty.dat/", "d/other.txt"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name+"x")), 0o777))
		if !strings.HasSuffix(name, "/") {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o666))
		}
	}
	must(t, os.WriteFile(outside+"/c.dat", []byte("out"), 0o666))
	must(t, syscall.Mkfifo(dir+"/fifo.dat", 0o666))
	must(t, syscall.Mkfifo(dir+"/fifo.txt", 0o666))
	for name, target := range map[string]string{
		"dangling.dat": "nope",
		"out.dat":      outside + "/c.dat",
		"folder":       outside,
		"gone":         "../annex/x",
		"gone.txt":     "nope",
		".hidden":      outside,
		"d/up":         "..",
		"in.dat":       "a.dat",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	is := func(name string) bool { return path.Ext(name) == ".dat" }
	for _, follow := range []bool{false, true} {
		s, err := OpenFor(dir, robocache.OpenOptions{FollowLinks: follow})
		must(t, err)
		files, links, err := Files(t.Context(), s, "", is)
		must(t, err)
		var good, bad, hiding []string
		for _, f := range files {
			_, err := s.Open(t.Context(), f.Name)
			if (err == nil) != (f.Err == nil) ||
				err != nil && !errors.Is(f.Err, robocache.ErrMalformed) {
				t.Errorf("%s: listed with %v, opened with %v", f.Name, f.Err, err)
			}
			if f.Err == nil {
				good = append(good, f.Name)
			} else {
				bad = append(bad, f.Name)
			}
		}
		for _, l := range links {
			hiding = append(hiding, l.Name)
		}
		wantGood, wantBad, wantHiding := "a.dat in.dat named.dat/b.dat", "dangling.dat "+
			"empty.dat fifo.dat out.dat", "folder gone"
		if follow {
			wantGood, wantBad, wantHiding = "a.dat folder/c.dat in.dat named.dat/b.dat out.dat", "dangling.dat empty.dat fifo.dat", "gone"
			wantGood = ".hidden/c.dat " + wantGood
		}
		g, b, h := strings.Join(good, " "), strings.Join(bad, " "), strings.Join(hiding, " ")
		if g != wantGood || b != wantBad || h != wantHiding {
			t.Errorf("follow %v: files %q, no files %q, links %q", follow, g, b, h)
		}
		i := slices.IndexFunc(files, func(f Entry) bool { return f.Name == "out.dat" })
		if !follow && !strings.Contains(files[i].Err.Error(), "FollowLinks: true") {
			t.Errorf("no hint: %v", files[i].Err)
		}
		sub, err := Sub(s, "named.dat")
		must(t, err)
		files, _, err = Files(t.Context(), sub, "", is)
		if err != nil || len(files) != 1 || files[0].Name != "b.dat" {
			t.Errorf("sub: %v, %v", files, err)
		}
	}
}

// TestHubSnapshotSpellings checks that links of the hub cache work for every spelling of the
// snapshot's path.
func TestHubSnapshotSpellings(t *testing.T) {
	hub := t.TempDir()
	for _, kind := range []string{"datasets--", "models--"} {
		repo := filepath.Join(hub, kind+"o--n")
		snapshot := repo + "/snapshots/c0ffee"
		must(t, os.MkdirAll(repo+"/blobs", 0o777))
		must(t, os.MkdirAll(snapshot, 0o777))
		must(t, os.WriteFile(repo+"/blobs/b1", []byte("{}"), 0o666))
		must(t, os.Symlink("../../blobs/b1", snapshot+"/info.json"))
		must(t, os.Symlink(snapshot, hub+"/"+kind+"link"))
		t.Chdir(snapshot)
		for _, uri := range []string{snapshot, ".", hub + "/" + kind + "link"} {
			s, err := Open(uri)
			must(t, err)
			b, err := ReadFile(t.Context(), s, "info.json", 10)
			if err != nil || string(b) != "{}" {
				t.Errorf("%s: %q, %v", uri, b, err)
			}
			Close(s)
		}
	}
}
