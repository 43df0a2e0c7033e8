package shard_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/shard"
)

// BenchmarkPlan plans many trajectories of the RT-X shape: up to 120 rows at 30 to 333 Hz onto 50 Hz.
func BenchmarkPlan(b *testing.B) {
	const n = 100_000
	job := shard.Job{Name: "resample", Source: fmt.Sprintf("synth://heterogeneous?episodes=%d&cap=120", n), Destination: filepath.Join(b.TempDir(), "out"), To: "lerobot",
		Convert: convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 50, Den: 1}}}}
	for b.Loop() {
		if _, err := shard.NewPlan(b.Context(), job, shard.PlanOptions{Shards: 100}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "episodes/s")
}
