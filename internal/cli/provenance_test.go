package cli

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// originOf returns the origin that inspect reports for an episode.
func originOf(t *testing.T, set string, episode int) robocache.Origin {
	t.Helper()
	_, out, errs := call(t, "inspect", set, "--episode", fmt.Sprint(episode), "--json")
	var r struct{ Origin robocache.Origin }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err, out, errs)
	}
	return r.Origin
}

// sha256Of returns the checksum of a file in the form of an origin.
func sha256Of(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b))
}

// TestProvenanceOfSharedFiles checks an episode from a format whose files hold many episodes. It
// names its file, its index and the file's checksum.
func TestProvenanceOfSharedFiles(t *testing.T) {
	for format, more := range map[string][]string{
		"rlds":  {"--write-option", "shards=2"},
		"delta": nil,
	} {
		dir := t.TempDir()
		src, dst := filepath.Join(dir, "set"), filepath.Join(dir, "converted")
		first := filepath.Join(dir, "first")
		for _, args := range [][]string{
			{"synth", first, "--episodes", "4", "--seconds", "1", "--cameras", "0"},
			append([]string{"convert", first, src, "--to", format}, more...),
		} {
			if code, out, errs := call(t, args...); code != exitDone {
				t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
			}
		}
		// The dataset names the recordings from which it was made. A copy of a dataset that names
		// none names that dataset.
		if o := originOf(t, src, 3); o.Dataset != first || o.Format != "lerobot" || o.Episode != 3 {
			t.Errorf("%s: %+v", format, o)
		}
		bare := filepath.Join(dir, "bare")
		args := append(
			[]string{
				"synth",
				bare,
				"--format",
				format,
				"--episodes",
				"4",
				"--seconds",
				"1",
				"--cameras",
				"0",
			},
			more...)
		if code, out, errs := call(t, args...); code != exitDone {
			t.Fatalf("%v: exit %d: %s%s", args, code, out, errs)
		}
		if code, out, errs := call(t, "convert", bare, dst, "--episodes", "1-3"); code != exitDone {
			t.Fatalf("exit %d: %s%s", code, out, errs)
		}
		file := "bare-train.tfrecord-00001-of-00002"
		if format == "delta" {
			files, err := filepath.Glob(filepath.Join(bare, "*.parquet"))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			file = filepath.Base(files[0])
		}
		want := robocache.Origin{
			Dataset:  bare,
			Format:   format,
			File:     file,
			Episode:  3,
			Checksum: sha256Of(t, filepath.Join(bare, file)),
		}
		if o := originOf(t, dst, 2); o != want {
			t.Errorf("%s: %+v, want %+v", format, o, want)
		}
	}
}

// TestProvenanceOfRuns checks that an episode converted from CALVIN names its first and last frame,
// and the checksum of the list of their checksums.
func TestProvenanceOfRuns(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "calvin"), filepath.Join(dir, "converted")
	folder := filepath.Join(src, "training")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	runs := npy("<i8", []int{2, 2}, []int64{98, 101, 102, 104})
	if err := os.WriteFile(filepath.Join(folder, "ep_start_end_ids.npy"), runs, 0o644); err != nil {
		t.Fatal(err)
	}
	for n := 98; n <= 104; n++ {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, width := range map[string]int{"rel_actions": 7, "robot_obs": 15} {
			w, err := z.Create(name + ".npy")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(npy("<f8", []int{width}, make([]float64, width))); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("episode_%07d.npz", n)), b.Bytes(),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := call(t, "convert", src, dst); code != exitDone && code != exitFindings {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	var list strings.Builder
	for n := 98; n <= 101; n++ {
		name := fmt.Sprintf("training/episode_%07d.npz", n)
		fmt.Fprintf(&list, "%s  %s\n", sha256Of(t, filepath.Join(src, name)), name)
	}
	want := robocache.Origin{
		Dataset:  src,
		Format:   "calvin",
		File:     "training/episode_0000098.npz",
		LastFile: "training/episode_0000101.npz",
		Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(list.String()))),
	}
	if o := originOf(t, dst, 0); o != want {
		t.Errorf("%+v, want %+v", o, want)
	}
	if o := originOf(t, dst, 1); o.File != "training/episode_0000102.npz" || o.Episode != 1 ||
		o.Checksum == "" {
		t.Errorf("%+v", o)
	}
}

// npy returns values as a NumPy file.
func npy(dtype string, shape []int, values any) []byte {
	dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ", "), "[]") + ","
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtype, dims)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), byte(len(head)>>8))
	b, _ = binary.Append(append(b, head...), binary.LittleEndian, values)
	return b
}
