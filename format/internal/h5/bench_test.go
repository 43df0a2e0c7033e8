//go:build unix

package h5

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/internal/inflate"
)

// cpuSeconds returns the CPU time of this process.
func cpuSeconds() float64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// BenchmarkGzip reads gzip chunks of images, each once. BenchmarkGzip/h5py measures h5py in its own
// process, in wall time and CPU time.
func BenchmarkGzip(b *testing.B) {
	path := filepath.Join(b.TempDir(), "gzip.hdf5")
	script := `
import sys, h5py, numpy as np
y, x = np.mgrid[0:84, 0:84]
rng = np.random.default_rng(0)
a = np.clip(np.stack([x * 2, y * 2, x + y], -1)[None] + rng.integers(-2, 3, (1000, 84, 84, 3)), 0, 255).astype('u1')
with h5py.File(sys.argv[1], 'w') as f:
    f.create_dataset('a', data=a, chunks=(1, 84, 84, 3), compression='gzip', compression_opts=4)
`
	if out, err := exec.Command(python(b), "-c", script, path).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	f := openFile(b, path, 1<<20) // almost nothing is cached
	o, err := f.Lookup(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	d, err := o.Dataset(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, d.Rows()*d.RowBytes())
	b.Logf("libdeflate: %v", inflate.Native())
	b.Run("all cores", func(b *testing.B) {
		b.SetBytes(int64(len(dst)))
		began := cpuSeconds()
		for b.Loop() {
			if err := d.ReadRows(b.Context(), 0, d.Rows(), dst); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*float64(len(dst))/1e6/(cpuSeconds()-began), "MB/cpu-s")
	})
	b.Run("one core", func(b *testing.B) {
		b.SetBytes(int64(len(dst)))
		for b.Loop() {
			for i := range d.Rows() {
				if err := d.ReadRows(b.Context(), i, 1,
					dst[i*d.RowBytes():(i+1)*d.RowBytes()]); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("h5py", func(b *testing.B) {
		b.SetBytes(int64(len(dst)))
		for b.Loop() {
			cmd := exec.Command(python(b), "-c", `
import sys, time, h5py, numpy as np
with h5py.File(sys.argv[1]) as f:
    d = f['a']; out = np.empty(d.shape, d.dtype)
    t, c = time.perf_counter(), time.process_time()
    d.read_direct(out)
    print(out.nbytes / (time.perf_counter() - t) / 1e6, out.nbytes / (time.process_time() - c) / 1e6)
`, path)
			out, err := cmd.Output()
			if err != nil {
				b.Fatal(err)
			}
			b.Logf("h5py: MB/s of wall time and of a core: %s", out)
		}
	})
}
