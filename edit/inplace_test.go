package edit_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/synth"
)

// copied returns a writable copy of a dataset.
func copied(t testing.TB, name string) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "set")
	if err := os.CopyFS(dst, os.DirFS(data(t, name))); err != nil {
		t.Fatal(err)
	}
	return dst
}

func inPlace(t testing.TB, dir string, verbs ...edit.Verb) (*edit.Report, error) {
	return edit.Run(
		t.Context(),
		&edit.Request{Sources: []string{dir}, Verbs: verbs, InPlace: true, Stats: "rows"},
	)
}

var dropFirst = edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0"}}

// In place, the result replaces the dataset, undo restores every byte, and a wrong episode number
// changes nothing.
func TestInPlace(t *testing.T) {
	dir := copied(t, "g1_h264_v30")
	old := tree(t, dir)
	_, err := inPlace(t, dir,
		edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "99"}})
	if !errors.Is(err,
		robocache.ErrMisuse) {
		t.Fatal(err)
	}
	if !maps.Equal(tree(t, dir), old) {
		t.Fatal("a wrong number changed something")
	}
	if r, err := inPlace(t, dir, dropFirst); err != nil ||
		strings.Contains(fmt.Sprint(r.Notes), "README") {
		t.Fatal(err, r)
	}
	src := open(t, data(t, "g1_h264_v30"))
	var rest []int
	for e := 1; e < src.Info().Episodes; e++ {
		rest = append(rest, e)
	}
	same(t, open(t, dir), src, whole(src, rest...), nil)
	healthy(t, dir)
	if err := edit.Undo(dir); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(tree(t, dir), old) {
		t.Fatal("undo does not give back what was there")
	}
	if err := edit.Undo(dir); !errors.Is(err, robocache.ErrNotFound) {
		t.Fatal(err)
	}
	// Files that the writer does not know are reported, because the next edit removes them.
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Unchanged videos are not copied. A change through their hard link is detected.
	if r, err := inPlace(t, dir, edit.Verb{Verb: "set-task", Text: "other"}); err != nil ||
		!strings.Contains(fmt.Sprint(r.Notes), "notes.txt") {
		t.Fatal(err, r)
	}
	mp4s, _ := filepath.Glob(
		filepath.Join(filepath.Dir(dir), ".set.robocache-undo", "videos", "*", "*", "*.mp4"),
	)
	if err := os.WriteFile(mp4s[0], []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := edit.Undo(dir); !errors.Is(err, robocache.ErrMalformed) {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".set.robocache-*"))
	if len(left) != 2 {
		t.Errorf("%v", left)
	}
}

const childEnv = "ROBOCACHE_EDIT_CHILD"

// TestKilled kills an edit in place at each step and at random times, with itself as the child
// process. The dataset's name then holds the old or the new dataset, and Recover completes the edit
// or rolls it back.
func TestKilled(t *testing.T) {
	if words := strings.Split(os.Getenv(childEnv), "|"); len(words) == 3 {
		dir, n := words[0], 0
		_, _ = fmt.Sscan(words[1], &n)
		if strings.Contains(words[2], "renames") {
			edit.NoExchange()
		}
		edit.SetStep(func(string) {
			if n--; n == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		})
		err := error(nil)
		if strings.Contains(words[2], "undo") {
			err = edit.Undo(dir)
		} else {
			_, err = inPlace(t, dir, dropFirst)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	dir := copied(t, "g1_h264_v30")
	old := tree(t, dir)
	begin := time.Now()
	if _, err := inPlace(t, dir, dropFirst); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	fresh := tree(t, dir)
	if err := edit.Undo(dir); err != nil {
		t.Fatal(err)
	}
	child := func(n int) *exec.Cmd { return killedChild(dir, n, "") }
	kept, done := 0, 0
	look := func(what string) {
		t.Helper()
		now := tree(t, dir)
		switch {
		case maps.Equal(now, old):
			kept++
		case maps.Equal(now, fresh):
			done++
		default:
			t.Fatalf("killed %s: neither the old dataset nor the new", what)
		}
		if _, err := edit.Recover(dir); err != nil {
			t.Fatalf("killed %s: %v", what, err)
		}
		if after := tree(t, dir); !maps.Equal(after, now) {
			t.Fatalf("killed %s: recover changed the dataset", what)
		}
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".set.robocache-*"))
		if maps.Equal(now, old) {
			if len(left) != 0 {
				t.Fatalf("killed %s: left %v", what, left)
			}
			return
		}
		if err := edit.Undo(dir); err != nil {
			t.Fatalf("killed %s: %v", what, err)
		}
		if !maps.Equal(tree(t, dir), old) {
			t.Fatalf("killed %s: undo gives something else", what)
		}
	}
	for n := 1; ; n++ {
		err := child(n).Run()
		look("at step " + strconv.Itoa(n))
		if err == nil {
			if n < 6 {
				t.Errorf("only %d steps", n)
			}
			break
		}
	}
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	for range 12 {
		c := child(0)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(took * 2))))
		_ = c.Process.Kill()
		_ = c.Wait()
		look("at random")
	}
	t.Logf("old %d times, new %d times", kept, done)
}

func killedChild(dir string, n int, how string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	c.Env = append(os.Environ(), childEnv+"="+dir+"|"+strconv.Itoa(n)+"|"+how)
	return c
}

// This covers file systems that cannot exchange folders in one step, and undo. After a kill at any
// step, Recover restores the old dataset or completes the new one.
func TestKilledRenames(t *testing.T) {
	dir := made(t, "lerobot", synth.Options{Episodes: 2, Seconds: 1, Cameras: -1}, nil)
	old := tree(t, dir)
	var fresh map[string]string
	for _, how := range []string{"edit by renames", "undo", "undo by renames"} {
		for n := 1; ; n++ {
			if strings.HasPrefix(how, "undo") {
				if _, err := inPlace(t, dir, dropFirst); err != nil {
					t.Fatal(err)
				}
				fresh = tree(t, dir)
			}
			done := killedChild(dir, n, how).Run() == nil
			if _, err := edit.Recover(dir); err != nil {
				t.Fatalf("%s, step %d: %v", how, n, err)
			}
			now := tree(t, dir)
			isOld := maps.Equal(now, old)
			if fresh == nil && !isOld {
				healthy(t, dir)
				fresh = now
			}
			if !isOld && !maps.Equal(now, fresh) {
				t.Fatalf("%s, step %d: neither the old dataset nor the new", how, n)
			}
			if !isOld {
				if err := edit.Undo(dir); err != nil {
					t.Fatalf("%s, step %d: %v", how, n, err)
				}
			}
			left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir),
				".src.robocache-*"))
			if len(left) != 0 || !maps.Equal(tree(t, dir), old) {
				t.Fatalf("%s, step %d: left %v", how, n, left)
			}
			if done {
				if want := map[bool]int{true: 2, false: 4}[how == "undo"]; n <= want {
					t.Errorf("%s: only %d steps", how, n-1)
				}
				break
			}
		}
	}
}

// Only one editor at a time can open the dataset. Plans can be applied in place too.
func TestOneEditor(t *testing.T) {
	dir := copied(t, "g1_h264_v30")
	n := open(t, dir).Info().Episodes
	tried := false
	edit.SetStep(func(what string) {
		if what == "build" {
			tried = true
			edit.SetStep(func(string) {})
			if _, err := inPlace(t, dir, dropFirst); !errors.Is(err, robocache.ErrTemporary) {
				t.Error(err)
			}
		}
	})
	defer edit.SetStep(func(string) {})
	if _, err := inPlace(t, dir, dropFirst); err != nil || !tried {
		t.Fatal(err)
	}
	r, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{dir},
		Verbs:   []edit.Verb{{Verb: "rename", Names: map[string]string{"action": "act"}}},
		DryRun:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	reader := open(t, dir)
	_, err = edit.Run(t.Context(),
		&edit.Request{Plans: []*edit.Plan{r.Plan}, InPlace: true})
	if err != nil {
		t.Fatal(err)
	}
	if ds := open(t, dir); ds.Info().Episodes != n-1 || ds.Info().Feature("act") == nil {
		t.Errorf("%v", ds.Info().Keys())
	}
	err = reader.Gather(t.Context(), "action", robocache.RowsOf(0, 0, 1),
		make([]byte, reader.Info().Feature("action").RowBytes()))
	if err != nil {
		t.Errorf("a reader that was open before: %v", err)
	}
}

// If the disk is full, only the old dataset remains.
func TestNoSpace(t *testing.T) {
	dir := copied(t, "g1_h264_v30")
	old := tree(t, dir)
	edit.SetStep(func(what string) {
		if what == "verify" { // truncate the result, so that the doctor finds an error
			mp4s, _ := filepath.Glob(
				filepath.Join(filepath.Dir(dir), ".set.robocache-new", "videos", "*", "*", "*.mp4"),
			)
			if err := os.Truncate(mp4s[0], 1000); err != nil {
				t.Error(err)
			}
		}
	})
	defer edit.SetStep(func(string) {})
	if _, err := inPlace(t, dir, dropFirst); err == nil {
		t.Fatal("a broken result took the dataset's place")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".set.robocache-*")); len(left) !=
		0 || !maps.Equal(tree(t, dir), old) {
		t.Errorf("%v", left)
	}
	edit.SetStep(func(string) {})
	for _, blocks := range []int{0, 2, 40, 400} { // in units of 512 bytes: the limit of file sizes
		c := exec.Command(
			"sh",
			"-c",
			fmt.Sprintf("ulimit -f %d; exec %s -test.run=^TestKilled$", blocks, os.Args[0]),
		)
		c.Env = append(os.Environ(), childEnv+"="+dir+"|0")
		if out, err := c.CombinedOutput(); err == nil {
			t.Fatalf("no error within files of %d blocks\n%s", blocks, out)
		}
		if left,
			_ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".set.robocache-*")); len(left) !=
			0 || !maps.Equal(tree(t, dir), old) {
			t.Errorf("%d blocks: %v", blocks, left)
		}
	}
}

// TestSecondEditReportsUndo checks that the second edit in place reports that it replaces the undo
// copy.
func TestSecondEditReportsUndo(t *testing.T) {
	dir := copied(t, "g1_h264_v30")
	const note = "the copy from before the earlier edit in place is deleted"
	for edits := range 2 {
		rename := edit.Verb{Verb: "rename", Names: map[string]string{"action": "actions"}}
		if edits == 1 {
			rename.Names = map[string]string{"actions": "action"}
		}
		report, err := inPlace(t, dir, rename)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(fmt.Sprint(report.Notes), note); got != (edits == 1) {
			t.Errorf("edit %d: notes %q, want the note: %v", edits, report.Notes, edits == 1)
		}
	}
}
