package zarr

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// BenchmarkChunks decodes an array chunk by chunk on one core.
func BenchmarkChunks(b *testing.B) {
	d := openTree(b, realdata.Path(b, "diffusion_policy_zarr/replay_buffer.zarr"))
	a := d.arrays["data/img"]
	raw, err := bytesOf(a.chunks, a.Type.Size)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(raw)
	b.ReportAllocs()
	// A reader's cache is full of chunks. With an empty heap, the collector would run after every
	// few chunks, which is not realistic.
	held := make([]byte, 128<<20)
	defer runtime.KeepAlive(&held)
	index := make([]int, len(a.grid))
	n, before := 0, cpu()
	for b.Loop() {
		if _, _, err := d.readChunk(b.Context(), a, index); err != nil {
			b.Fatal(err)
		}
		// The last chunk is skipped, because it has rows outside the array.
		if index[0]++; index[0] >= max(a.grid[0]-1, 1) {
			index[0] = 0
		}
		n++
	}
	b.ReportMetric(float64(n)*float64(raw)/(float64(cpu()-before)/1e3), "MB/cpu-s")
}

// cpu returns the CPU time of the process in ns.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
