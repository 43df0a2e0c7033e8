package shard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

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

// BenchmarkCommit commits many small shards of a folder. ROBOCACHE_SHARDS says how many.
func BenchmarkCommit(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv("ROBOCACHE_SHARDS"))
	n = max(n, 200)
	for range b.N {
		dst := filepath.Join(b.TempDir(), "out")
		m := plan(b, shard.Job{Name: "resample", Source: fmt.Sprintf("synth://heterogeneous?episodes=%d&cap=20", n), Destination: dst, To: "lerobot",
			Convert: convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}}}}, n)
		b.StopTimer()
		var g errgroup.Group
		g.SetLimit(8)
		for i := range n {
			g.Go(func() error { _, err := shard.Run(b.Context(), m, i, shard.RunOptions{Threads: 1}); return err })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		before := cpuSeconds(b)
		if _, err := shard.Commit(b.Context(), m, shard.CommitOptions{}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(cpuSeconds(b)-before, "CPU-s")
	}
}

// cpuSeconds is what this process has used.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
