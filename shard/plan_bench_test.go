package shard_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/goatnote-inc/robocache/store/tests/servers"
)

// BenchmarkPlan plans many trajectories like those of RT-X: up to 120 rows at 30 to 333 Hz,
// resampled to 50 Hz.
func BenchmarkPlan(b *testing.B) {
	const n = 100_000
	job := shard.Job{
		Name:        "resample",
		Source:      fmt.Sprintf("synth://heterogeneous?episodes=%d&cap=120", n),
		Destination: filepath.Join(b.TempDir(), "out"),
		To:          "lerobot",
		Convert:     convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 50, Den: 1}}},
	}
	for b.Loop() {
		if _, err := shard.NewPlan(b.Context(), job, shard.PlanOptions{Shards: 100}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "episodes/s")
}

// BenchmarkRun runs one shard of 5,000 such trajectories with one thread.
func BenchmarkRun(b *testing.B) {
	before := cpuSeconds(b)
	for range b.N {
		job := shard.Job{
			Name:        "resample",
			Source:      "synth://heterogeneous?episodes=5000&cap=120",
			Destination: filepath.Join(b.TempDir(), "out"),
			To:          "lerobot",
			Convert: convert.Options{
				Align:        &align.Config{HZ: robocache.Rate{Num: 50, Den: 1}},
				WriteOptions: robocache.WriteOptions{Keys: []string{"observation.proprio"}},
			},
		}
		if _,
			err := shard.Run(b.Context(), plan(b, job, 1), 0, shard.RunOptions{Threads: 1}); err !=
			nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuSeconds(b)-before)/float64(b.N), "CPU-s/op")
}

// BenchmarkCommit commits many small shards. ROBOCACHE_SHARDS sets their number.
// ROBOCACHE_JOB=stats writes no dataset. ROBOCACHE_S3 commits in a bucket of a real server; with
// "count", a proxy counts the requests. The shards are written to the server's folder, which is
// faster, and get the manifest of the bucket.
func BenchmarkCommit(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv("ROBOCACHE_SHARDS"))
	n = max(n, 200)
	for range b.N {
		job := shard.Job{
			Name:        "resample",
			Source:      fmt.Sprintf("synth://heterogeneous?episodes=%d&cap=20", n),
			Destination: filepath.Join(b.TempDir(), "out"),
			To:          "lerobot",
			Convert:     convert.Options{Align: &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}}},
		}
		if os.Getenv("ROBOCACHE_JOB") == "stats" {
			job = shard.Job{Name: "stats", Source: job.Source, Destination: job.Destination}
		}
		m := plan(b, job, n)
		committed := m
		if os.Getenv("ROBOCACHE_S3") != "" {
			dir, endpoint := servers.S3(b)
			b.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
			job.Destination = "s3://lab/out"
			if err := os.Mkdir(filepath.Join(dir, "lab"), 0o777); err != nil {
				b.Fatal(err)
			}
			committed = plan(b, job, n)
			job.Destination = filepath.Join(dir, "lab", "out")
			m = plan(b, job, n)
		}
		b.StopTimer()
		var g errgroup.Group
		g.SetLimit(8)
		for i := range n {
			g.Go(
				func() error {
					_, err := shard.Run(b.Context(), m, i, shard.RunOptions{
						Threads: 1,
					})
					return err
				},
			)
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		if committed != m {
			was, now := sha256.Sum256(must(m.Marshal())), sha256.Sum256(must(committed.Marshal()))
			list, _ := filepath.Glob(filepath.Join(m.Job.Destination, "_receipts", "*"))
			for _, name := range list {
				text, err := os.ReadFile(name)
				if err == nil {
					err = os.WriteFile(
						name,
						bytes.Replace(
							text,
							[]byte(hex.EncodeToString(was[:])),
							[]byte(hex.EncodeToString(now[:])),
							1,
						),
						0o644,
					)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		b.StartTimer()
		// Count the requests through a proxy. Its time is not measured.
		if os.Getenv("ROBOCACHE_S3") == "count" {
			proxy := servers.NewProxy(b, os.Getenv("AWS_ENDPOINT_URL_S3"))
			b.Setenv("AWS_ENDPOINT_URL_S3", proxy.URL)
			defer func() {
				b.ReportMetric(float64(proxy.Requests.Load())/float64(n), "requests/shard")
			}()
		}
		before := cpuSeconds(b)
		if _, err := shard.Commit(b.Context(), committed, shard.CommitOptions{}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(cpuSeconds(b)-before, "CPU-s")
	}
}

// cpuSeconds returns the CPU time of this process.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
