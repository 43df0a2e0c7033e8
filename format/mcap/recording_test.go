package mcap

import (
	"context"
	"os"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// BenchmarkRecording: a whole file to columns, opening included: ours in bench/arms/formats_recordings.py, for a profile.
func BenchmarkRecording(b *testing.B) {
	path := os.Getenv("ROBOCACHE_MCAP")
	if path == "" {
		b.Skip("no ROBOCACHE_MCAP")
	}
	ctx := context.Background()
	before := cpu()
	for b.Loop() {
		ds, err := Open(ctx, path, robocache.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range ds.Info().Features {
			if f.RowBytes() == 0 {
				continue
			}
			at, err := ds.Times(ctx, 0, f.Key)
			if err != nil {
				b.Fatal(err)
			}
			if err := ds.Gather(ctx, f.Key, allRows(0, len(at)), make([]byte, len(at)*f.RowBytes())); err != nil {
				b.Fatal(err)
			}
		}
		ds.Close()
	}
	b.ReportMetric((cpu()-before)*1e3/float64(b.N), "cpu-ms/op")
}
