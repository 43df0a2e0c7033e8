package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/synth"
)

// remoteEpochs opens a set and reads it n times through a cache directory. It returns the digest of
// each epoch, and the requests for opening and for each epoch.
func remoteEpochs(
	t testing.TB,
	far *slow,
	uri, format, dir string,
	n int,
) (sums []string, requests []int64) {
	t.Helper()
	opt := robocache.OpenOptions{Format: format, MemoryBudget: 1 << 20}
	if f, _ := robocache.FormatNamed(format); !f.Stamped {
		opt.HZ = robocache.Rate{Num: 30, Den: 1}
	}
	last := far.requests.Load()
	lap := func() {
		now := far.requests.Load()
		requests = append(requests, now-last)
		last = now
	}
	ds, err := robocache.Open(t.Context(), uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if manyClocks(ds) {
		ds = gridded(t, ds, robocache.Rate{Num: 30, Den: 1})
	}
	lap()
	for range n {
		sum, _, err := digest(
			t.Context(),
			ds,
			loader.Config{
				Order:        loader.Order{BatchSize: 16, Shuffle: loader.Global, Seed: 3},
				Runtime:      loader.Runtime{Threads: runtime.NumCPU()},
				CacheOptions: loader.CacheOptions{Cache: dir},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum)
		lap()
	}
	return sums, requests
}

// With a cache directory, the second epoch of every format makes no request and has equal values.
// Damaged blocks are requested again, changed files are not served from the cache, and other
// processes share it.
func TestSecondEpochIsLocal(t *testing.T) {
	decoders(t)
	servers.Credentials(t)
	if uri := os.Getenv("ROBOCACHE_TEST_CHILD"); uri != "" { // the other process
		p := strings.Split(uri, " ")
		far := &slow{}
		sums, _ := remoteEpochs(t, far, p[0], p[1], p[2], 1)
		fmt.Println("digest", sums[0])
		return
	}
	root := t.TempDir()
	far := newSlow(t, root)
	names := map[string]string{
		"lerobot":   "set",
		"rlds":      "set",
		"mcap":      "set",
		"zarr":      "set.zarr",
		"robomimic": "set.hdf5",
	}
	for format, name := range names {
		t.Run(format, func(t *testing.T) {
			local := filepath.Join(root, "lab", format, name)
			write := func(seed uint64) string {
				os.RemoveAll(local)
				rates := map[string]float64{"camera": 30, "joints": 30, "force": 30}
				if _, err := synth.Write(t.Context(), local, synth.Options{
					Format:   format,
					Episodes: 2, Seconds: 2, Width: 160, Height: 120, Cameras: 1,
					Rates: rates, Seed: seed,
				}); err != nil {
					t.Fatal(err)
				}
				sums, _ := remoteEpochs(t, far, local, format, "", 1)
				return sums[0]
			}
			want := write(1)
			s3 := "s3://lab/" + format + "/" + name + "?endpoint=" + far.url
			for scheme, uri := range map[string]string{
				"s3":   s3,
				"http": far.url + "/lab/" + format + "/" + name,
			} {
				if scheme == "http" && format == "mcap" {
					uri += "/" + first(t, local, ".mcap")
				}
				dir := t.TempDir()
				check := func(what string, sums []string, want string) {
					t.Helper()
					for i, s := range sums {
						if s != want {
							t.Fatalf("%s: %s: epoch %d has other values", scheme, what, i)
						}
					}
				}
				want := want
				if scheme == "http" && format == "mcap" {
					sums, _ := remoteEpochs(
						t,
						far,
						filepath.Join(local, first(t, local, ".mcap")),
						format,
						"",
						1,
					)
					want = sums[0]
				}
				sums, n := remoteEpochs(t, far, uri, format, dir, 3)
				check("cold", sums, want)
				if n[2] != 0 || n[3] != 0 {
					t.Errorf("%s: requests to open %d, then an epoch each: %v", scheme, n[0], n[1:])
				}
				sums, again := remoteEpochs(t, far, uri, format, dir, 1)
				check("opened again", sums, want)
				// over http, the version of each chunk file is requested
				if chunks := format == "zarr" && scheme == "http"; !chunks && again[1] > 3+n[1]/4 {
					t.Errorf(
						"%s: opened again, an epoch asks %d times; it was %v",
						scheme,
						again[1],
						n,
					)
				}
				t.Logf("%s: %d to open, epochs %v; opened again %v", scheme, n[0], n[1:], again)
				if scheme == "s3" {
					child := exec.Command(
						os.Args[0],
						"-test.run=^TestSecondEpochIsLocal$",
						"-test.v",
					)
					child.Env = append(os.Environ(), "ROBOCACHE_TEST_CHILD="+uri+" "+format+" "+dir)
					before := far.requests.Load()
					out, err := child.CombinedOutput()
					if err != nil || !strings.Contains(string(out), "digest "+want) {
						t.Fatalf("another process: %v\n%s", err, out)
					}
					if got := far.requests.Load() - before; got > again[0]+again[1]+3 {
						t.Errorf("another process asks %d times, this one %v", got, again)
					}
				}
				if format == "mcap" {
					continue // it has been in memory since it was opened
				}
				damage(t, dir)
				sums, _ = remoteEpochs(t, far, uri, format, dir, 1)
				check("damaged", sums, want)
				if scheme == "s3" {
					other := write(2)
					sums, _ = remoteEpochs(t, far, uri, format, dir, 1)
					check("changed", sums, other)
					if other == want {
						t.Fatal("the other seed gives the same values")
					}
					write(1)
				}
			}
		})
	}
}

func first(t *testing.T, dir, suffix string) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if len(found) == 0 {
		t.Fatal("no", suffix)
	}
	return filepath.Base(found[0])
}

// damage changes bytes in each shard of a cache directory.
func damage(t *testing.T, dir string) {
	t.Helper()
	shards, _ := filepath.Glob(filepath.Join(dir, "*.shard"))
	if len(shards) == 0 {
		t.Fatal("nothing was kept")
	}
	for _, p := range shards {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := 4096; i < len(b)-4096; i += 10_000 {
			b[i] ^= 0x55
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
