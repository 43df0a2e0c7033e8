package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// fixedPart is the memory of a process outside its budgets: the Go runtime and its garbage, code
// and tables of the decoders, and the index of the dataset.
const fixedPart = 96 << 20

const childSet = "ROBOCACHE_E2E_CHILD"

// TestChild is not a test. TestPeakMemory runs it in a separate process.
func TestChild(t *testing.T) {
	name := os.Getenv(childSet)
	if name == "" {
		t.Skip("run by TestPeakMemory")
	}
	var budget int64
	var batch, windows int
	var keep string
	fmt.Sscan(os.Getenv(childSet+"_ARGS"), &budget, &batch, &windows, &keep)
	ds, err := robocache.Open(
		t.Context(),
		realdata.Path(t, name),
		robocache.OpenOptions{MemoryBudget: 32 << 20},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: batch, Shuffle: loader.Global, Seed: 1},
		Runtime: loader.Runtime{MemoryBudget: loader.Bytes(budget), Prefetch: 16, Threads: 4},
	}
	switch keep {
	case "pool":
		cfg.Shuffle = loader.Pool
	case "ram":
		cfg.Cache = "ram"
	case "dir":
		cfg.Cache, cfg.CacheBudget = t.TempDir(), loader.Bytes(4*budget)
	}
	if windows > 1 {
		w := loader.Delta{Key: camera}
		for i := range windows {
			w.Offsets = append(w.Offsets, -float64(i)/ds.Info().FPS.Float())
		}
		cfg.Deltas = loader.Deltas{w}
	}
	l, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var given int64
	for given < 10*budget {
		b, err := l.Next(t.Context())
		if err == io.EOF {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		given += b.Bytes()
		b.Release()
	}
	fmt.Printf("given %d peak %d\n", given, peak(t))
}

// peak returns the largest resident memory of the process.
func peak(t testing.TB) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "VmHWM: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	t.Skip("no VmHWM in /proc/self/status")
	return 0
}

// e2e.C5: an epoch of ten times the budget is streamed. The peak stays within the budgets plus
// fixedPart.
func TestPeakMemory(t *testing.T) {
	decoders(t)
	for _, c := range []struct {
		name           string
		budget         int64
		batch, windows int
		keep           string
	}{
		{"g1_h264_v30", 24 << 20, 8, 1, "none"},
		{"g1_h264_v30_bigdrift", 32 << 20, 32, 4, "none"},
		{"g1_v30_exact", 40 << 20, 8, 1, "none"},
		{"g1_v30_exact", 96 << 20, 8, 1, "pool"},
		{"g1_v30_exact", 96 << 20, 8, 1, "ram"},
		{"g1_v30_exact", 96 << 20, 8, 1, "dir"},
	} {
		t.Run(c.name+" "+c.keep, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.name != small {
				t.Skip("short")
			}
			realdata.Path(t, c.name)
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			cmd.Env = append(
				os.Environ(),
				childSet+"="+c.name,
				fmt.Sprintf("%s_ARGS=%d %d %d %s", childSet, c.budget, c.batch, c.windows, c.keep),
			)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			i := strings.Index(string(out), "given ")
			var given, high int64
			if i < 0 {
				t.Fatalf("the child says %s", out)
			}
			if _, err := fmt.Sscanf(string(out[i:]), "given %d peak %d", &given, &high); err !=
				nil {
				t.Fatalf("the child says %s", out)
			}
			t.Logf(
				"budget %d MiB (+32 for the dataset): %d MiB of batches streamed, peak %d MiB",
				c.budget>>20,
				given>>20,
				high>>20,
			)
			if limit := c.budget + 32<<20 + fixedPart; high > limit {
				t.Errorf("peak %d MiB, limit %d MiB", high>>20, limit>>20)
			}
		})
	}
}

// e2e.C5: a loader is opened 100 times, read for a while, and closed at a random moment, sometimes
// during Next. Nothing remains.
func TestCloseAtAnyMoment(t *testing.T) {
	decoders(t)
	dir := realdata.Path(t, small)
	rng := rand.New(rand.NewPCG(3, 4))
	once := func() {
		ds, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := loader.New(
			t.Context(),
			ds,
			loader.Config{
				Order: loader.Order{
					BatchSize: 1 + rng.IntN(32),
					Shuffle:   loader.Global,
					Seed:      rng.Int64(),
				},
				Runtime: loader.Runtime{Threads: 1 + rng.IntN(6), Prefetch: 1 + rng.IntN(4)},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		var held *loader.Batch
		for range rng.IntN(5) {
			b, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if held == nil {
				held = b // a batch that is used after its loader is closed
				continue
			}
			b.Release()
		}
		got := make(chan error, 1)
		if rng.IntN(2) == 0 {
			go func() {
				b, err := l.Next(t.Context())
				if err == nil {
					b.Release()
				}
				got <- err
			}()
		} else {
			got <- nil
		}
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil && !errors.Is(err, robocache.ErrMisuse) && err != io.EOF {
			t.Errorf("Next while closing: %v", err)
		}
		if _, err := l.Next(t.Context()); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("Next after Close: %v", err)
		}
		if err := ds.Close(); err != nil {
			t.Error(err)
		}
		if held != nil {
			sum := byte(0)
			for i := range held.Tensors {
				for _, v := range held.Tensors[i].Data {
					sum ^= v
				}
			}
			_ = sum
			held.Release()
		}
	}
	for range 5 {
		once() // allocates what is needed once per process
	}
	goroutines, files := numGoroutine(), descriptors()
	n := 100
	if testing.Short() {
		n = 20
	}
	for range n {
		once()
	}
	if now := steadied(numGoroutine, goroutines); now > goroutines {
		t.Errorf("%d goroutines, there were %d", now, goroutines)
	}
	if now := steadied(descriptors, files); now > files {
		t.Errorf("%d open files, there were %d", now, files)
	}
}

// e2e.C5: a canceled Next or Items returns without finishing its work first, and the loader remains
// usable.
func TestCancel(t *testing.T) {
	decoders(t)
	// a file has two key frames, so a batch takes seconds
	ds := open(t, realdata.Path(t, "gr00t_picknplace_v20"))
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 64, Shuffle: loader.Global, Seed: 1},
		Runtime: loader.Runtime{Threads: 2, Prefetch: 8},
	}
	l, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m, err := loader.NewMap(t.Context(), ds, loader.Config{Runtime: loader.Runtime{Threads: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	all := make([]int64, 1000)
	for i := range all {
		all[i] = int64(i * 2)
	}
	for name, call := range map[string]func(ctx context.Context) (*loader.Batch, error){
		"Next":  l.Next,
		"Items": func(ctx context.Context) (*loader.Batch, error) { return m.Items(ctx, all) },
	} {
		for _, after := range []time.Duration{
			0,
			time.Millisecond,
			30 * time.Millisecond,
			120 * time.Millisecond,
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			done := m.Stats().FramesUnique
			b, err := call(ctx)
			<-ctx.Done()
			if n := m.Stats().FramesUnique - done; n >= int64(len(all)) {
				t.Errorf("%s, cancelled after %v: %d frames were decoded first", name, after, n)
			}
			if err == nil {
				b.Release()
				// an earlier call may already have prepared the batch
				if name == "Next" && after > 0 {
					continue
				}
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled after %v: %v", name, after, err)
			}
		}
	}
	done := l.Stats().FramesUnique
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := l.Stats().FramesUnique - done; n > 256 {
		t.Errorf("Close decoded %d frames", n)
	}
}
