package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/store"
)

// childManifest makes the test binary run a shard or commit.
const childManifest = "ROBOCACHE_SHARD_TEST_MANIFEST"

func TestMain(m *testing.M) {
	if name := os.Getenv(childManifest); name != "" {
		man, err := shard.Read(context.Background(), name)
		if i, ierr := strconv.Atoi(os.Args[1]); err == nil && ierr == nil {
			_, err = shard.Run(context.Background(), man, i, shard.RunOptions{})
		} else if err == nil {
			_, err = shard.Commit(context.Background(), man, shard.CommitOptions{})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKilledProcesses kills real processes with SIGKILL at any moment.
func TestKilledProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for i, job := range []shard.Job{killJobs[0], killJobs[2]} { // LeRobot, Delta
		killed(t, self, filepath.Join(dir, strconv.Itoa(i)), job)
	}
}

func killed(t *testing.T, self, dir string, job shard.Job) {
	job.Source, job.Destination = "synth://heterogeneous?episodes=40&cap=100", filepath.Join(
		dir,
		"out",
	)
	m := plan(t, job, 3)
	name := filepath.Join(dir, "m.json")
	if err := errors.Join(os.Mkdir(dir, 0o755), m.Write(t.Context(), name)); err != nil {
		t.Fatal(err)
	}
	child := func(what string, after time.Duration) error {
		c := exec.Command(self, what)
		c.Env = append(os.Environ(), childManifest+"="+name)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if after > 0 {
			time.AfterFunc(after, func() { _ = c.Process.Kill() })
		}
		return c.Wait()
	}
	whole := time.Now()
	for _, what := range []string{"0", "1", "2", "commit"} {
		if err := child(what, 0); err != nil {
			t.Fatal(what, err)
		}
	}
	per := time.Since(whole) / 4
	files := func() map[string]string {
		s, err := store.OpenLocal(job.Destination)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return contents(t, s)
	}
	want := files()
	rng := rand.New(rand.NewPCG(7, 7))
	kills := 0
	for range 3 {
		if err := os.RemoveAll(job.Destination); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"0", "2", "1", "commit"} {
			for try := 0; try < 4; try++ {
				if child(what, time.Duration(rng.Int64N(int64(per)))+time.Millisecond) != nil {
					kills++
				}
			}
			if err := child(what, 0); err != nil {
				t.Fatal(what, err)
			}
		}
		if _, err := shard.GC(t.Context(), m, 0); err != nil {
			t.Fatal(err)
		}
		if d := differences(want, files()); d != nil {
			t.Fatal(d)
		}
		var temps []string
		_ = filepath.WalkDir(job.Destination, func(p string, d os.DirEntry, _ error) error {
			if strings.HasPrefix(filepath.Base(p), ".robocache-") ||
				d.IsDir() && strings.Contains(p, "_staging") {
				temps = append(temps, p)
			}
			return nil
		})
		if !reflect.DeepEqual(temps, []string(nil)) {
			t.Errorf("left behind: %v", temps)
		}
	}
	t.Logf("%s: %d processes were killed", job.To, kills)
}
