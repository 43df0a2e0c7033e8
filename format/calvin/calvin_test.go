package calvin

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// made runs a NumPy script that writes a dataset into the given folder. It skips the test if there
// is no NumPy.
func made(t *testing.T, script string) string {
	t.Helper()
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with numpy: ", err)
	}
	dir := t.TempDir()
	cmd := exec.Command(py, "-c", head+script, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	return dir
}

const head = `
import os, sys, pickle
import numpy as np
D = sys.argv[1]
def frame(n, k, save=np.savez, split="training", **over):
    os.makedirs(f"{D}/{split}/lang_annotations", exist_ok=True)
    a = dict(actions=np.full(7, n, np.float32), rel_actions=np.full(7, -n, np.float32), robot_obs=np.arange(15.) + n, scene_obs=np.zeros(24),
             rgb_static=np.full((20, 24, 3), n % 256, np.uint8), depth_static=np.full((20, 24), n / 2, np.float32),
             rgb_tactile=np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6), depth_tactile=np.stack([np.full((4, 5), n), np.full((4, 5), -n)], -1).astype(np.float32))
    a.update(over)
    save(f"{D}/{split}/episode_{n:0{k}d}.npz", **a)
def ids(*runs, split="training"): np.save(f"{D}/{split}/ep_start_end_ids.npy", np.array(runs))
def lang(spans, ann, task, emb=True, split="training"):
    l = {"language": {"ann": ann, "task": task}, "info": {"episodes": [], "indx": spans}}
    if emb: l["language"]["emb"] = np.arange(len(ann) * 4, dtype=np.float32).reshape(len(ann), 1, 4)
    np.save(f"{D}/{split}/lang_annotations/auto_lang_ann.npy", l, allow_pickle=True)
`

func text(t *testing.T, d *Dataset, key string, e int) []string {
	t.Helper()
	rows := make([]robocache.Row, d.Len(e))
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i}
	}
	s, err := d.Text(t.Context(), key, rows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLanguage covers overlapping windows, rows without an annotation, both kinds of episodes, and
// splits (calvin.C1, calvin.C4).
func TestLanguage(t *testing.T) {
	dir := made(t, `
for n in (3, 4, 5, 6, 7): frame(n, 7)
for n in (100, 101): frame(n, 7, split="validation")
ids((3, 7)); ids((100, 101), split="validation")
lang([(4, 6), (np.int64(5), 5), (6, 9)], ["push", "lift", "out"], ["a", "b", "c"])
lang(np.array([[100, 100]]), np.array(["turn"]), np.array(["d"]), emb=False, split="validation")
np.save(f"{D}/training/scene_info.npy", {"x": os.path}, allow_pickle=False) if False else open(f"{D}/training/scene_info.npy", "wb").write(b"x")
`)
	d := open(t, dir, robocache.OpenOptions{})
	if d.About.Episodes != 2 || d.Len(0) != 5 || d.Len(1) != 2 ||
		d.About.Splits["training"] != "0:1" ||
		d.About.Splits["validation"] != "1:2" {
		t.Fatalf("%+v", d.About)
	}
	if got := text(t, d, "language_instruction", 0); !slices.Equal(got,
		[]string{"", "push", "lift", "out", "out"}) {
		t.Errorf("%q", got)
	}
	if got := text(t, d, "task", 1); !slices.Equal(got, []string{"turn", ""}) {
		t.Errorf("%q", got)
	}
	if got := text(t, d, "language_task", 0); !slices.Equal(got, []string{"", "a", "b", "c", "c"}) {
		t.Errorf("%q", got)
	}
	rows := []robocache.Row{{Index: 0}, {Index: 2}, {Episode: 1}}
	valid, emb := make([]uint8, 3), make([]byte, 3*16)
	if err := errors.Join(d.Valid(t.Context(), "language_embedding", rows, valid),
		d.Gather(t.Context(), "language_embedding", rows, emb)); err != nil {
		t.Fatal(err)
	}
	if v := robocache.Float64s(nil, robocache.Float32, emb); !slices.Equal(valid,
		[]uint8{0, 1, 0}) || v[4] != 4 || v[0] != 0 || v[8] != 0 {
		t.Error(valid, v)
	}
	codes := map[string]int{}
	for _, f := range d.About.Findings {
		codes[f.Code]++
	}
	if codes["window-outside-run"] != 1 || codes["objects-skipped"] != 1 {
		t.Error(d.About.Findings)
	}
	ep, err := d.Episode(t.Context(), 0)
	if err != nil || !slices.Equal(ep.Tasks, []string{"push", "lift", "out"}) {
		t.Error(ep, err)
	}
	w := open(t, dir, robocache.OpenOptions{Options: map[string]string{"language": "episodes"}})
	if w.About.Episodes != 3 || w.Len(0) != 3 || w.Len(1) != 1 || w.Len(2) != 1 {
		t.Fatalf("%+v", w.About)
	}
	if got := text(t, w, "task", 0); !slices.Equal(got, []string{"push", "push", "push"}) {
		t.Errorf("%q", got)
	}
	if one := open(t, filepath.Join(dir, "validation"),
		robocache.OpenOptions{}); one.About.Episodes != 1 || one.Len(0) != 2 {
		t.Errorf("%+v", one.About)
	}
}

// TestTactile checks that six channels become two images, and two depths two streams (calvin.C2).
func TestTactile(t *testing.T) {
	d := open(t, made(t, `
frame(9, 6); ids((9, 9))
`), robocache.OpenOptions{})
	get := func(key string) *robocache.Raw {
		out := make([]robocache.FrameRef, 1)
		if err := d.Frames(t.Context(), key, []robocache.Row{{}}, out); err != nil {
			t.Fatal(err)
		}
		return out[0].Raw
	}
	for i, key := range []string{"observation.rgb_tactile.0", "observation.rgb_tactile.1"} {
		r := get(key)
		if r.Height != 4 || r.Width != 5 || r.Channels != 3 || r.Pix[3] != byte(6+3*i) ||
			r.Pix[59] != byte(116+3*i) {
			t.Errorf("%s: %d×%d %v", key, r.Height, r.Width, r.Pix)
		}
	}
	for i, key := range []string{"observation.depth_tactile.0", "observation.depth_tactile.1"} {
		r := get(key)
		if v := robocache.Float64s(
			nil,
			r.DType,
			r.Pix,
		); len(v) != 20 || v[7] != []float64{9, -9}[i] ||
			r.Channels != 1 {
			t.Errorf("%s: %v", key, v)
		}
	}
	if r := get("observation.depth_static"); r.DType != robocache.Float32 || r.Height != 20 ||
		r.Width != 24 {
		t.Errorf("%+v", r)
	}
}

// TestForms reads the same values in other forms. An array of another type or shape must be an
// error of its stream that contains the file and the member (calvin.C3).
func TestForms(t *testing.T) {
	dir := made(t, `
frame(0, 7)
frame(1, 7, save=np.savez_compressed, robot_obs=(np.arange(15.) + 1).astype(">f8"), rgb_static=np.asfortranarray(np.arange(20*24*3).reshape(20, 24, 3).astype(np.uint8)))
frame(2, 7, robot_obs=np.arange(15, dtype=np.float32))
frame(3, 7, rgb_static=np.zeros((20, 23, 3), np.uint8))
frame(4, 7)
z = dict(np.load(f"{D}/training/episode_0000004.npz")); z.pop("scene_obs"); np.savez(f"{D}/training/episode_0000004.npz", **z)
frame(6, 7, extra=np.array([{"a": 1}], dtype=object))
ids((0, 6))
`)
	d := open(t, dir, robocache.OpenOptions{})
	b := make([]byte, 120)
	if err := d.Gather(t.Context(), "observation.robot_obs", []robocache.Row{{Index: 1}}, b); err !=
		nil {
		t.Fatal(err)
	}
	if v := robocache.Float64s(nil, robocache.Float64, b); v[14] != 15 {
		t.Error(v)
	}
	out := make([]robocache.FrameRef, 1)
	if err := d.Frames(t.Context(), "observation.rgb_static", []robocache.Row{{Index: 1}},
		out); err != nil {
		t.Fatal(err)
	}
	for i, p := range out[0].Raw.Pix {
		if p != byte(i) {
			t.Fatal("Fortran order: byte", i, "is", p)
		}
	}
	// An array that differs or is missing is an error of its own stream, and of no other.
	read := func(key string, row int) error {
		if d.About.Feature(key).Kind == robocache.KindImage {
			return d.Frames(t.Context(), key, []robocache.Row{{Index: row}}, out)
		}
		b := make([]byte, d.About.Feature(key).RowBytes())
		return d.Gather(t.Context(), key, []robocache.Row{{Index: row}}, b)
	}
	wrong := map[int]string{2: "robot_obs", 3: "rgb_static", 4: "scene_obs"}
	for row := range 7 {
		for _, f := range d.About.Features {
			err := read(f.Key, row)
			class, want := error(nil), ""
			switch {
			case row == 5:
				class, want = robocache.ErrNotFound, "episode_0000005.npz"
			case f.Key == "observation."+wrong[row]:
				class, want = robocache.ErrMalformed, wrong[row]+".npy"
			}
			if !errors.Is(err, class) {
				t.Errorf("%s, row %d: %v", f.Key, row, err)
			}
			if class != nil && (!strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "episode_000000")) {
				t.Errorf("%s, row %d: %v", f.Key, row, err)
			}
		}
	}
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
	codes := map[string]int{}
	for _, f := range found {
		codes[f.Code]++
	}
	if err != nil || codes["bad-frame"] != 3 || codes["missing-file"] != 1 {
		t.Error(found, err)
	}
}

// TestDamage checks that a frame that is cut anywhere is an error, and that its neighbors can be
// read.
func TestDamage(t *testing.T) {
	dir := made(t, `
frame(0, 7, save=np.savez_compressed); frame(1, 7); ids((0, 1))
`)
	name := filepath.Join(dir, "training/episode_0000001.npz")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]robocache.FrameRef, 1)
	for n := 0; n < len(whole); n += 37 {
		if err := os.WriteFile(name, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		d := open(t, dir, robocache.OpenOptions{})
		if err := d.Frames(t.Context(), "observation.rgb_static", []robocache.Row{{Index: 1}},
			out); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("cut to %d of %d: %v", n, len(whole), err)
		}
		if err := d.Frames(t.Context(), "observation.rgb_static", []robocache.Row{{Index: 0}},
			out); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHostile checks that a pickle which calls os.system is an error with the name and the file,
// and that nothing runs. Malformed runs are errors.
func TestHostile(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	dir := made(t, `
frame(0, 7); ids((0, 0))
class X:
    def __reduce__(self): return (os.system, ("touch `+mark+`",))
np.save(f"{D}/training/lang_annotations/auto_lang_ann.npy", {"language": X()}, allow_pickle=True)
`)
	_, err := Open(t.Context(), dir, robocache.OpenOptions{})
	if !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), "system") ||
		!strings.Contains(err.Error(), "auto_lang_ann.npy") {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("the pickle ran")
	}
	for _, runs := range []string{"(5, 3)", "(-1, 3)", "(0, 2**60)"} {
		dir := made(t, "frame(0, 7); ids("+runs+")")
		if _, err := Open(t.Context(), dir, robocache.OpenOptions{}); !errors.Is(err,
			robocache.ErrMalformed) || !strings.Contains(err.Error(), "ep_start_end_ids.npy") {
			t.Error(runs, err)
		}
	}
}

// TestLease checks that leased images equal those of Frames, and that results of Frames stay valid
// when memory is leased again.
func TestLease(t *testing.T) {
	d := open(t, made(t, `
for n in range(6): frame(n, 7, save=np.savez if n % 2 else np.savez_compressed)
ids((0, 5))
`), robocache.OpenOptions{})
	for _, f := range d.About.Features {
		if f.Kind != robocache.KindImage {
			continue
		}
		rows := []robocache.Row{{Index: 5}, {Index: 0}, {Index: 3}, {Index: 3}}
		a, b := make([]robocache.FrameRef, 4), make([]robocache.FrameRef, 4)
		if err := d.Frames(t.Context(), f.Key, rows, a); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			done, err := d.LeaseFrames(t.Context(), f.Key, rows, b)
			if err != nil {
				t.Fatal(err)
			}
			for i := range a {
				if !bytes.Equal(a[i].Raw.Pix, b[i].Raw.Pix) {
					t.Errorf("%s: image %d differs", f.Key, i)
				}
			}
			done()
			rows[0], rows[3] = rows[3], rows[0]
			a[0], a[3] = a[3], a[0]
		}
	}
}

// TestSharedArrays reads the streams of one array in many goroutines while frames are closed and
// memory is leased again (calvin.C8). The results must equal single reads. The array of a frame
// that stays open is read once.
func TestSharedArrays(t *testing.T) {
	dir := made(t, `
for n in range(12): frame(n, 7, save=np.savez if n % 2 else np.savez_compressed)
ids((0, 11))
`)
	d := open(t, dir, robocache.OpenOptions{MemoryBudget: 1})
	keys := []string{
		"observation.rgb_tactile.0",
		"observation.rgb_tactile.1",
		"observation.depth_tactile.0",
		"observation.depth_tactile.1",
	}
	name := filepath.Join(dir, "training/episode_0000000.npz")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		if err := errors.Join(os.WriteFile(name, b, 0o644),
			os.Chtimes(name, stat.ModTime(), stat.ModTime())); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		ref := make([]robocache.FrameRef, 1)
		if err := d.Frames(t.Context(), keys[2*i], make([]robocache.Row, 1), ref); err != nil {
			t.Fatal(err)
		}
		write(make([]byte, len(whole)))
		if err := d.Frames(t.Context(), keys[2*i+1], make([]robocache.Row, 1), ref); err != nil {
			t.Error("the array was read again: ", err)
		}
		write(whole)
	}
	_ = d.files.Forget()
	want := map[string][]robocache.FrameRef{}
	rows := make([]robocache.Row, 12)
	for i := range rows {
		rows[i].Index = i
	}
	for _, key := range keys {
		want[key] = make([]robocache.FrameRef, len(rows))
		if err := d.Frames(t.Context(), key, rows, want[key]); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			out := make([]robocache.FrameRef, 1)
			for i := range 60 {
				key, row := keys[(g+i)%len(keys)], (g*7+i)%len(rows)
				done, err := d.LeaseFrames(t.Context(), key, rows[row:row+1], out)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(out[0].Raw.Pix, want[key][row].Raw.Pix) {
					t.Errorf("%s: row %d differs", key, row)
				}
				done()
				if i%20 == 0 {
					_ = d.files.Forget()
				}
			}
		})
	}
	wg.Wait()
}

// TestWithoutRuns checks that frames without ep_start_end_ids.npy are detected and opened by their
// numbers, with a finding that names the file.
func TestWithoutRuns(t *testing.T) {
	dir := made(t, "for n in (3, 4, 9): frame(n, 7)")
	for path, name := range map[string]string{
		dir:                            "training/ep_start_end_ids.npy",
		filepath.Join(dir, "training"): "ep_start_end_ids.npy",
	} {
		d, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		info := d.Info()
		if info.Format != "calvin" || info.Episodes != 2 || d.Len(0) != 2 ||
			len(info.Findings) == 0 ||
			!strings.Contains(info.Findings[0].Hint, "fetch "+name) {
			t.Errorf("%s: %+v", path, info)
		}
	}
	if ok, err := Detect(t.Context(), t.TempDir(), robocache.OpenOptions{}); ok || err != nil {
		t.Error(ok, err)
	}
	if _, err := Open(t.Context(), t.TempDir(), robocache.OpenOptions{}); !errors.Is(err,
		robocache.ErrNotFound) || !strings.Contains(err.Error(), "hint") {
		t.Error(err)
	}
}
