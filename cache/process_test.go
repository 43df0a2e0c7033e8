//go:build linux || darwin

package cache

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// roleVar makes the test binary run a role instead of tests. It acts as another process.
const roleVar = "ROBOCACHE_CACHE_ROLE"

var roles = map[string]func(args []string) error{"load": roleLoad}

func TestMain(m *testing.M) {
	// A rename that waits for the disk's journal holds the lock longer than training would wait.
	putLockLimit = time.Minute
	if role := os.Getenv(roleVar); role != "" {
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t testing.TB, role string, args ...any) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := make([]string, len(args))
	for i, a := range args {
		text[i] = fmt.Sprint(a)
	}
	c := exec.Command(self, text...)
	c.Env = append(os.Environ(), roleVar+"="+role)
	return c
}

// roleLoad has the arguments dir, budget, seed, keys and turns. Two goroutines get random keys,
// compare every byte and put missing entries. With 0 turns they run until the process is killed.
func roleLoad(args []string) error {
	n := make([]int64, len(args))
	for i, a := range args[1:] {
		v, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return err
		}
		n[i+1] = v
	}
	d, err := Open(args[0], Options{Budget: n[1], ShardBytes: 1 << 20})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	seed, keys := uint64(n[2]), n[3]
	var working sync.Once
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	hits := 0
	for g := range 2 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(g)))
			for turn := int64(0); n[4] == 0 || turn < n[4]; turn++ {
				i := int(r.Int64N(keys))
				e, ok := d.Get(key(i))
				var err error
				if ok {
					if string(e.Data) != string(value(i)) {
						err = fmt.Errorf("entry %d: wrong bytes", i)
					}
					e.Release()
				} else {
					err = d.Put(key(i), value(i))
				}
				if r.IntN(500) == 0 {
					err = d.Flush()
				}
				mu.Lock()
				if ok {
					hits++
				}
				if err != nil && first == nil {
					first = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
				working.Do(func() { fmt.Println("working") })
			}
		})
	}
	wg.Wait()
	if err := d.Close(); first == nil {
		first = err
	}
	s := d.Stats()
	if s.BadEntries+s.BadShards > 0 || s.Stopped != "" {
		first = fmt.Errorf("%+v", s)
	}
	fmt.Printf("hits %d puts %d evicted %d\n", hits, s.Puts, s.Evicted)
	return first
}

// TestProcesses checks that several processes read and write one cache within one budget, with
// correct bytes.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	const n = 3
	var cmds [n]*exec.Cmd
	var outs [n]strings.Builder
	for i := range cmds {
		cmds[i] = command(t, "load", dir, 2*small, i, 600, 6000)
		cmds[i].Stdout = &outs[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var done sync.WaitGroup
	for _, c := range cmds {
		done.Go(func() {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	peak := int64(0)
	for running := true; running; {
		select {
		case <-finished:
			running = false
		case <-time.After(2 * time.Millisecond):
			peak = max(peak, diskBytes(t, dir))
		}
	}
	puts := 0
	for i := range outs {
		t.Log(strings.TrimSpace(outs[i].String()))
		var h, p, e int
		_, err := fmt.Sscanf(
			outs[i].String(),
			"ready\nworking\nhits %d puts %d evicted %d",
			&h,
			&p,
			&e,
		)
		if err != nil {
			t.Error(err)
		}
		puts += p
		if h == 0 {
			t.Error("no hit")
		}
	}
	if peak > 2*small {
		t.Errorf("the files took %d bytes of %d", peak, 2*small)
	}
	v, err := Verify(t.Context(), dir, VerifyOptions{})
	if err != nil || len(v.Damaged) > 0 || v.Entries == 0 || v.Skipped > 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestKilled kills a process at random moments in a loop (cache.C8). All entries are correct
// afterwards, leftovers are sealed or removed, and most of the data is kept.
func TestKilled(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	var recovered, entries, removed int64
	const keys = 500
	for round := range rounds {
		var cmds [2]*exec.Cmd
		for i := range cmds {
			cmds[i] = command(t, "load", dir, 2*small, r.Int64(), keys, 0)
			out, err := cmds[i].StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmds[i].Start(); err != nil {
				t.Fatal(err)
			}
			if round%4 != 0 { // otherwise it may be killed while it opens the cache
				r := bufio.NewReader(out)
				// An empty cache is written before the process is killed.
				for _, want := range []string{"ready\n", "working\n"} {
					if line, err := r.ReadString('\n'); line != want {
						rest, _ := io.ReadAll(r)
						t.Fatalf("seed %d round %d: %q %v %s", seed, round, line, err, rest)
					}
				}
			}
		}
		time.Sleep(time.Duration(r.Int64N(int64(120 * time.Millisecond))))
		for _, c := range cmds {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range cmds {
			_ = c.Wait()
			if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() {
				t.Fatalf(
					"seed %d round %d: a child ended by itself: %v",
					seed,
					round,
					c.ProcessState,
				)
			}
		}
		d := mustOpen(t, dir, Options{Budget: 2 * small})
		hits := count(t, d, keys)
		s := d.Stats()
		if s.BadEntries+s.BadShards > 0 {
			t.Errorf("seed %d round %d: %+v", seed, round, s)
		}
		if left := shardFiles(t, dir, openSuffix); len(left) > 0 {
			t.Errorf("seed %d round %d: left %v", seed, round, left)
		}
		if b := diskBytes(t, dir); b > 2*small {
			t.Errorf("seed %d round %d: %d bytes on disk", seed, round, b)
		}
		if round == rounds-1 && hits == 0 {
			t.Error("nothing was kept")
		}
		recovered += s.Recovered
		entries += s.RecoveredEntries
		removed += s.RemovedLeftovers
		d.Close()
		if round%5 == 4 {
			// empties the cache, so that the next process writes
			if _, err := Prune(dir, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf(
		"%d shards of killed writers sealed (%d entries), %d removed",
		recovered,
		entries,
		removed,
	)
	if recovered == 0 {
		t.Error("no leftover was ever recovered: the test shows nothing")
	}
}

// TestLivingWriterIsLeftAlone checks that Open and Prune do not touch the shard of a living writer
// (cache.C8).
func TestLivingWriterIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	a := mustOpen(t, dir, Options{Budget: 2 * small})
	mustPut(t, a, 1)
	mustOpen(t, dir, Options{Budget: 2 * small})
	if _, err := Prune(dir, 0); err != nil {
		t.Fatal(err)
	}
	l, err := List(dir)
	if err != nil || len(l.Shards) != 1 || l.Shards[0].State != StateWriting {
		t.Fatalf("%+v, %v", l, err)
	}
	mustPut(t, a, 2)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if hits := count(t, mustOpen(t, dir, Options{Budget: 2 * small}), 3); hits != 2 {
		t.Errorf("%d of 2", hits)
	}
}
