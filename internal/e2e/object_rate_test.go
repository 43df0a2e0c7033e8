package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/synth"
)

// evict takes a folder's files out of the page cache.
func evict(t testing.TB, path string) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		f.Sync()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestObjectStoreRate measures an epoch over s3 at 5 ms a request beside one of cold local files, in turn: ROBOCACHE_RATE=1.
func TestObjectStoreRate(t *testing.T) {
	if os.Getenv("ROBOCACHE_RATE") == "" {
		t.Skip("a measurement: ROBOCACHE_RATE=1")
	}
	decoders(t)
	bucket, endpoint := inS3(t)
	far := servers.NewProxy(t, endpoint)
	far.Latency = 5 * time.Millisecond
	for format, name := range map[string]string{"lerobot": "set", "rlds": "set", "mcap": "set", "zarr": "set.zarr", "robomimic": "set.hdf5"} {
		t.Run(format, func(t *testing.T) {
			local := filepath.Join(t.TempDir(), name)
			rates := map[string]float64{"camera": 30, "joints": 30, "force": 30}
			if _, err := synth.Write(t.Context(), local, synth.Options{Format: format, Episodes: 10, Seconds: 10, Width: 320, Height: 240, Cameras: 1, Rates: rates, Seed: 1}); err != nil {
				t.Fatal(err)
			}
			upload(t, bucket+"/"+format, local)
			for _, order := range []loader.Shuffle{loader.Global} {
				epoch := func(uri, cache string) float64 {
					opt := robocache.OpenOptions{}
					if f, _ := robocache.FormatNamed(format); !f.Stamped {
						opt.HZ = robocache.Rate{Num: 30, Den: 1}
					}
					var before syscall.Rusage
					syscall.Getrusage(syscall.RUSAGE_SELF, &before)
					requests, bytes := far.Requests.Load(), far.Bytes.Load()
					ds, err := robocache.Open(t.Context(), uri, opt)
					if err != nil {
						t.Fatal(err)
					}
					defer ds.Close()
					if manyClocks(ds) {
						ds = gridded(t, ds, robocache.Rate{Num: 30, Den: 1})
					}
					opened := far.Requests.Load() - requests
					begin := time.Now()
					_, n, err := digest(t.Context(), ds, loader.Config{Order: loader.Order{BatchSize: 32, Shuffle: order, Seed: 3},
						Memory: loader.Memory{Threads: runtime.NumCPU(), Prefetch: 4, Cache: cache}})
					if err != nil {
						t.Fatal(err)
					}
					took := time.Since(begin)
					line := fmt.Sprintf("%-9s %-6s %5d samples %7.0f/s", format, order, n, float64(n)/took.Seconds())
					if uri != local {
						line += fmt.Sprintf(", %d requests (%d to open), %.0f bytes a sample", far.Requests.Load()-requests, opened, float64(far.Bytes.Load()-bytes)/float64(n))
					}
					t.Log(line)
					return float64(n) / took.Seconds()
				}
				remote := bucket + "/" + format + "/" + name + "?endpoint=" + far.URL
				var sum float64
				const times = 2
				for range times {
					evict(t, local)
					l := epoch(local, "")
					sum += epoch(remote, "") / l
				}
				t.Logf("%-9s %-6s %.2f of local cold", format, order, sum/times)
				cache := t.TempDir()
				epoch(remote, cache)
				epoch(remote, cache)
			}
		})
	}
}
