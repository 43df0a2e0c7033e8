package blosc

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache/format/internal/elements"
)

func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkUnshuffle measures MB per CPU second for blocks in the CPU cache. The limit is a plain
// copy.
func BenchmarkUnshuffle(b *testing.B) {
	src, dst, planes := make([]byte, 64<<10), make([]byte, 64<<10), make([]byte, 64<<10)
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			before := cpu()
			n := 0
			for b.Loop() {
				f()
				n++
			}
			b.ReportMetric(float64(n)*float64(len(src))/(float64(cpu()-before)/1e3), "MB/cpu-s")
		})
	}
	run("copy", func() { copy(dst, src) })
	for _, size := range []int{1, 2, 4, 8} {
		run(fmt.Sprint("bytes/", size), func() { elements.Unshuffle(dst, src, size) })
		run(fmt.Sprint("bits/", size), func() { unshuffleBits(dst, src, planes, size) })
	}
}
