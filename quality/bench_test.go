package quality

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkMeasure measures episodes of 14 columns in memory, without images, in one goroutine. It
// reports rows per second of CPU time, because other processes may use the cores.
func BenchmarkMeasure(b *testing.B) {
	s := newFakeSet(64)
	scale, err := ScaleOf(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	m, err := newMeasurement(b.Context(), s, Options{Frames: NoFrames, Scale: scale})
	if err != nil {
		b.Fatal(err)
	}
	r := &reader{ds: s, roles: m.roles, scale: scale, budget: DefaultBudget}
	rows, before := 0, cpuTime(b)
	for b.Loop() {
		for i := range m.positions {
			if err := m.fillRow(b.Context(), r, nil, i); err != nil {
				b.Fatal(err)
			}
			rows += s.Len(i)
		}
	}
	b.ReportMetric(float64(rows)/(cpuTime(b)-before).Seconds(), "rows/cpu-s")
}
