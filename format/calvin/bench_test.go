package calvin

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/realdata"
)

// BenchmarkFrame reads all arrays of a frame, as bench/arms/formats_calvin.py does with numpy. ROBOCACHE_CALVIN names a folder of frames
// that are stored, as CALVIN's own are; without it the deflated frames of the shared data are read.
func BenchmarkFrame(b *testing.B) {
	dir := os.Getenv("ROBOCACHE_CALVIN")
	if dir == "" {
		dir = realdata.Path(b, "calvin_like")
	}
	d := open(b, dir, robocache.OpenOptions{MemoryBudget: 1})
	out := make([]robocache.FrameRef, 1)
	var bytes int64
	for _, m := range d.members {
		bytes += m.bytes
	}
	b.SetBytes(bytes)
	// A training process holds batches: with an empty heap the collector would run every few frames, which it does nowhere else.
	held := make([]byte, 128<<20)
	defer runtime.KeepAlive(&held)
	b.ReportAllocs()
	i, before := 0, cpu()
	for b.Loop() {
		row := []robocache.Row{{Episode: i % len(d.eps)}}
		row[0].Index = (i / len(d.eps)) % d.Len(row[0].Episode)
		i++
		d.cache.Clear() // nothing of another pass is kept
		d.parts.Clear()
		d.files.close()
		d.files.shut = false
		for _, f := range d.info.Features {
			switch f.Kind {
			case robocache.KindImage:
				done, err := d.LendFrames(b.Context(), f.Key, row, out) // as the loader does
				if err != nil {
					b.Fatal(err)
				}
				done()
			case robocache.KindNumeric:
				if err := d.Gather(b.Context(), f.Key, row, make([]byte, f.RowBytes())); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(cpu()-before)/1e6/float64(i), "cpu-ms/frame")
}

// cpu is what the process used so far, in ns: on a shared machine the only time that means something.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
