package quality

import (
	"testing"
)

// BenchmarkMeasure measures episodes of 14 columns in memory, without images. Its unit is rows per
// second and core.
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
	b.ResetTimer()
	rows := 0
	for b.Loop() {
		for i := range m.positions {
			if err := m.fillRow(b.Context(), r, nil, i); err != nil {
				b.Fatal(err)
			}
			rows += s.Len(i)
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}
