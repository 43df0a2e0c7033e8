package convert_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// fullDisk fails at the n-th create, write or commit, and at all later ones.
type fullDisk struct {
	store.Writable
	left *atomic.Int64
}

type fullFile struct {
	store.Writer
	left *atomic.Int64
}

func spend(left *atomic.Int64) error {
	if left.Add(-1) < 0 {
		return &robocache.Error{Class: robocache.ErrResourceLimit, Err: syscall.ENOSPC}
	}
	return nil
}

func (d fullDisk) Create(ctx context.Context, name string) (store.Writer, error) {
	if err := spend(d.left); err != nil {
		return nil, err
	}
	w, err := d.Writable.Create(ctx, name)
	return fullFile{w, d.left}, err
}

func (f fullFile) Write(p []byte) (int, error) {
	if err := spend(f.left); err != nil {
		return 0, err
	}
	return f.Writer.Write(p)
}

func (f fullFile) Commit() error {
	if err := spend(f.left); err != nil {
		f.Abort()
		return err
	}
	return f.Writer.Commit()
}

// convert.C5: if the disk is full at any point, an error reports it and no files remain.
func TestDiskFull(t *testing.T) {
	src := open(t, data(t, "g1_h264_v30"))
	opt := Options{
		Frames:         stats.NoFrames,
		Episodes:       []int{0, 1},
		DataFileBytes:  50_000,
		VideoFileBytes: 300_000,
	}
	for n := 0; ; n++ {
		mem := storetest.NewMem(fmt.Sprintf("full-%d", n))
		var left atomic.Int64
		left.Store(int64(n))
		_, err := write.WriteStore(
			t.Context(),
			src,
			fullDisk{mem, &left},
			opt.options(true, nil).WriteOptions,
		)
		if err == nil {
			if n < 20 {
				t.Errorf("a run of %d operations", n)
			}
			t.Logf("%d operations, each made to fail", n)
			return
		}
		if !errors.Is(err, robocache.ErrResourceLimit) {
			t.Fatalf("operation %d: %v", n, err)
		}
		files, err := mem.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != 0 {
			t.Fatalf("operation %d failed and left %v", n, files)
		}
	}
}

// convert.C5: if the context ends, no files and no folders remain.
func TestCancel(t *testing.T) {
	src := open(t, data(t, "g1_v21"))
	dst := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := ToLeRobot(ctx, src, dst, Options{Frames: stats.NoFrames, Progress: func(p Progress) {
		if p.Episodes == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := os.Stat(dst); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", tree(t, dst))
	}
}

const childEnv = "ROBOCACHE_CONVERT_CHILD"

func killOptions() Options {
	o := Options{
		DataFileBytes:  50_000,
		VideoFileBytes: 1_500_000,
		Threads:        1,
		Frames:         stats.NoFrames,
	}
	if exhaustive() {
		o.Frames = stats.SampledFrames
	}
	return o
}

// TestKill kills a conversion, with itself as the child process. The result has no info.json, or it
// is complete. Resuming gives the bytes of an uninterrupted run.
func TestKill(t *testing.T) {
	if dst := os.Getenv(childEnv); dst != "" {
		if _, err := ToLeRobot(t.Context(), open(t, data(t, "g1_v21")), dst, killOptions()); err !=
			nil {
			t.Fatal(err)
		}
		return
	}
	src := open(t, data(t, "g1_v21"))
	whole := filepath.Join(t.TempDir(), "whole")
	begin := time.Now()
	if _, err := ToLeRobot(t.Context(), src, whole, killOptions()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	begin = time.Now()
	if err := exec.Command(os.Args[0], "-test.run=^$").Run(); err != nil {
		t.Fatal(err)
	}
	startup := time.Since(begin)
	want := tree(t, whole)
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	rounds := 4
	if exhaustive() {
		rounds = 20
	}
	early, late, reused := 0, 0, 0
	for range rounds {
		dst := filepath.Join(t.TempDir(), "out")
		child := exec.Command(os.Args[0], "-test.run=^TestKill$")
		child.Env = append(os.Environ(), childEnv+"="+dst)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(startup + time.Duration(rng.Int64N(int64(took*5/4))))
		_ = child.Process.Kill()
		_ = child.Wait()
		if _, err := os.Stat(filepath.Join(dst, "meta", "info.json")); err == nil {
			late++
			got := tree(t, dst)
			delete(got, journalName) // the kill may happen between the two
			if !maps.Equal(got, want) {
				t.Fatal("info.json is there, and the dataset is not whole")
			}
			continue
		}
		early++
		if _, err := os.Stat(filepath.Join(dst, journalName)); err == nil {
			_, err := ToLeRobot(t.Context(), src, dst, killOptions())
			if !errors.Is(err,
				robocache.ErrMisuse) {
				t.Fatalf("without Resume: %v", err)
			}
			other := killOptions()
			other.Resume, other.VideoFileBytes = true, 1
			_, err = ToLeRobot(t.Context(), src, dst, other)
			if !errors.Is(err,
				robocache.ErrMisuse) {
				t.Fatalf("resumed with other options: %v", err)
			}
			if files,
				_ := filepath.Glob(filepath.Join(dst, "videos", "*", "*", "*.mp4")); len(files) >
				0 {
				reused++
			}
		}
		opt := killOptions()
		opt.Resume = true
		if _, err := ToLeRobot(t.Context(), src, dst, opt); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, dst); !maps.Equal(got, want) {
			for k, v := range got {
				if want[k] != v {
					t.Errorf("%s differs from an uninterrupted run", k)
				}
			}
			t.Fatalf("%d files, want %d", len(got), len(want))
		}
	}
	t.Logf(
		"killed %d times before the end (%d with finished mp4s), %d after "+
			"(ROBOCACHE_EXHAUSTIVE=1: 20 times, with statistics of images)",
		early,
		reused,
		late,
	)
}

// convert.C5: a kill while the first journal is written leaves only its unfinished file. The next
// run removes that file, and no others.
func TestKilledAtTheFirstJournal(t *testing.T) {
	src := open(t, data(t, "g1_v21"))
	for _, c := range []struct {
		resume bool
		age    time.Duration
		goes   bool
	}{{true, 0, true}, {false, 2 * time.Hour, true}, {false, 0, false}} {
		dst := t.TempDir()
		left := filepath.Join(dst, ".robocache-tmp-LEFT")
		if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-c.age)
		if err := os.Chtimes(left, then, then); err != nil {
			t.Fatal(err)
		}
		opt := killOptions()
		opt.Resume, opt.Episodes = c.resume, []int{0}
		if _, err := ToLeRobot(t.Context(), src, dst, opt); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(left); os.IsNotExist(err) != c.goes {
			t.Errorf("resume %v, %v old: %v", c.resume, c.age, err)
		}
	}
}

// convert.C5: a destination that is not empty is rejected and not changed.
func TestRefusesTakenDestination(t *testing.T) {
	src := open(t, data(t, "g1_v21"))
	dst := t.TempDir()
	if err := os.WriteFile(filepath.Join(dst, "mine.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, resume := range []bool{false, true} {
		_, err := ToLeRobot(t.Context(), src, dst, Options{Resume: resume})
		if !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("resume %v: %v", resume, err)
		}
	}
	if got := tree(t, dst); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
