//go:build unix

package query_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/query"
	"github.com/goatnote-inc/robocache/synth"
)

// reportCPU returns a function that reports the processor time of an operation. The time on the
// wall depends on other programs.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric((used()-before).Seconds()*1e3/float64(b.N), "cpu-ms/op") }
}

// BenchmarkFind searches 100,000 episodes with an index: go test -bench Find -run ^$ ./query/
func BenchmarkFind(b *testing.B) {
	ds, err := synth.New(synth.Options{
		Preset: "heterogeneous", Episodes: 100_000, Cap: 100,
	})
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "x.index")
	if _, err := query.BuildIndex(
		b.Context(),
		path,
		ds,
		query.IndexOptions{Budget: 1 << 34},
	); err != nil {
		b.Fatal(err)
	}
	index, err := query.OpenIndex(b.Context(), path, ds)
	if err != nil {
		b.Fatal(err)
	}
	defer index.Close()
	for _, text := range []string{
		"action[0] > 0.5", "action[0] > 0.5 for 0.5s", "count(rising(action[6])) >= 2",
		"max(norm(action)) > 3", "speed(action) < 0.1 for 1s",
		"falling(action[6]) while action[2] > 0.2 for 0.5s",
	} {
		e, err := query.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				bound, err := e.Bind(b.Context(), ds, query.Options{Index: index})
				if err != nil {
					b.Fatal(err)
				}
				ranges, err := bound.Find(b.Context(), nil, 0)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(ranges)), "ranges")
			}
		})
	}
}

// BenchmarkNearest searches 10^6 vectors of 512: go test -bench Nearest -run ^$ ./query/
func BenchmarkNearest(b *testing.B) {
	const n, width = 1_000_000, 512
	v := &query.Vectors{VectorsInfo: query.VectorsInfo{Width: width, Count: n}}
	v.Values = make([]float32, n*width)
	state := uint32(1)
	for i := range v.Values {
		state = state*1664525 + 1013904223
		v.Values[i] = float32(int32(state)) / (1 << 31)
	}
	b.SetBytes(4 * n * width)
	defer reportCPU(b)()
	for b.Loop() {
		if _, err := v.Nearest(b.Context(), v.Values[:width], nil, 20, 0); err != nil {
			b.Fatal(err)
		}
	}
}
