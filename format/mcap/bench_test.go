package mcap

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// BenchmarkOpen opens a complete recording.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(realdata.Path(b, "mcap_robot"), "recording_zstd.mcap")
	for b.Loop() {
		ds, err := Open(context.Background(), path, robocache.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		ds.Close()
	}
}

// BenchmarkGather reads windows of 50 rows of the joints from decoded columns.
func BenchmarkGather(b *testing.B) {
	ctx := context.Background()
	ds, err := Open(
		ctx,
		filepath.Join(realdata.Path(b, "mcap_robot"), "recording_zstd.mcap"),
		robocache.OpenOptions{},
	)
	if err != nil {
		b.Fatal(err)
	}
	defer ds.Close()
	w := ds.Info().Feature("joint_states.position").RowBytes()
	rows, dst := allRows(0, 50), make([]byte, 50*w)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		for i := range rows {
			rows[i].Index = (k*7)%270 + i
		}
		if err := ds.Gather(ctx, "joint_states.position", rows, dst); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScan reads every message of the recording without the cache.
func BenchmarkScan(b *testing.B) {
	ctx := context.Background()
	for _, name := range []string{"recording_zstd.mcap", "recording_lz4.mcap"} {
		b.Run(name, func(b *testing.B) {
			s := openFile(
				b,
				filepath.Join(realdata.Path(b, "mcap_robot"), name),
				StorageOptions{Chunks: container.NewChunks(1)},
			)
			var all []int
			for i := range s.Topics() {
				all = append(all, i)
			}
			b.SetBytes(s.Bytes())
			for b.Loop() {
				if _, err := s.Walk(
					ctx,
					all,
					func(int, int, *bag.Message) error { return nil },
				); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWhole opens a recording and gathers all its numbers.
func BenchmarkWhole(b *testing.B) {
	path := filepath.Join(realdata.Path(b, "mcap_robot"), "recording_zstd.mcap")
	container.Poison = false
	defer func() { container.Poison = true }()
	ctx := context.Background()
	before, n := cpu(), 0
	for ; b.Loop(); n++ {
		ds, err := Open(ctx, path, robocache.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range ds.Info().Features {
			if f.RowBytes() == 0 {
				continue
			}
			t, err := ds.Times(ctx, 0, f.Key)
			if err != nil {
				b.Fatal(err)
			}
			if err := ds.Gather(ctx, f.Key, allRows(0, len(t)),
				make([]byte, len(t)*f.RowBytes())); err != nil {
				b.Fatal(err)
			}
		}
		ds.Close()
	}
	b.ReportMetric((cpu()-before)/float64(n)*1e3, "cpu-ms/op")
}
