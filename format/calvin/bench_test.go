package calvin

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// BenchmarkFrame reads all arrays of frames: one frame at a time, and batches of 32 on all cores.
func BenchmarkFrame(b *testing.B) {
	for name, n := range map[string]int{"one": 1, "eight": 8, "batch": 32} {
		b.Run(name, func(b *testing.B) { readFrames(b, n) })
	}
}

func readFrames(b *testing.B, n int) {
	d := open(b, realdata.Path(b, "calvin_like"), robocache.OpenOptions{})
	var bytes int64
	for _, m := range d.members {
		bytes += m.bytes
	}
	b.SetBytes(bytes * int64(n))
	// A training process holds batches. With an empty heap, the collector would run after every few
	// frames, which is not realistic.
	held := make([]byte, 128<<20)
	defer runtime.KeepAlive(&held)
	b.ReportAllocs()
	rows, out := make([]robocache.Row, n), make([]robocache.FrameRef, n)
	i, before := 0, spent()
	for b.Loop() {
		for k := range rows {
			e := i % len(d.episodes)
			rows[k] = robocache.Row{Episode: e, Index: i / len(d.episodes) % d.Len(e)}
			i++
		}
		d.cache.Clear() // drop the results of the previous pass
		if err := d.files.Forget(); err != nil {
			b.Fatal(err)
		}
		for _, f := range d.About.Features {
			switch f.Kind {
			case robocache.KindImage:
				done, err := d.LeaseFrames(b.Context(), f.Key, rows, out) // as the loader does
				if err != nil {
					b.Fatal(err)
				}
				done()
			case robocache.KindNumeric:
				if err := d.Gather(b.Context(), f.Key, rows, make([]byte, n*f.RowBytes())); err !=
					nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(spent()-before)/1e6/float64(i), "cpu-ms/frame")
	b.ReportMetric(float64(b.Elapsed())/1e6/float64(i), "ms/frame")
}

// BenchmarkFloor opens each frame, reads its bytes into one buffer and closes it, which every
// reader must do.
func BenchmarkFloor(b *testing.B) {
	names, err := filepath.Glob(realdata.Path(b, "calvin_like") + "/training/episode_*.npz")
	if err != nil || len(names) == 0 {
		b.Skip("no frames")
	}
	buf := make([]byte, 4<<20)
	i, before := 0, spent()
	for b.Loop() {
		f, err := os.Open(names[i%len(names)])
		if err != nil {
			b.Fatal(err)
		}
		n, err := f.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(n))
		f.Close()
		i++
	}
	b.ReportMetric(float64(spent()-before)/1e6/float64(i), "cpu-ms/frame")
	b.ReportMetric(float64(b.Elapsed())/1e6/float64(i), "ms/frame")
}

// spent returns the CPU time of the process in ns. Wall time has no meaning on a shared machine.
func spent() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
