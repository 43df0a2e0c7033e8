package loader_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/loader"
)

// BenchmarkKept measures whole epochs from a pool and the caches: CPU seconds and wall time per
// 1,000 samples of 640×480. If there is a cache, an epoch fills it first.
func BenchmarkKept(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  loader.Config
		warm bool
	}{
		{"global", loader.Config{Order: loader.Order{Shuffle: loader.Global}}, false},
		{"pool", loader.Config{Order: loader.Order{Shuffle: loader.Pool}}, true},
		{
			"ram",
			loader.Config{
				Order:        loader.Order{Shuffle: loader.Global},
				CacheOptions: loader.CacheOptions{Cache: "ram"},
			},
			true,
		},
		{
			"ram-rgb",
			loader.Config{
				Order:        loader.Order{Shuffle: loader.Global},
				CacheOptions: loader.CacheOptions{Cache: "ram", CacheFormat: "rgb"},
			},
			true,
		},
		{
			"ram-224",
			loader.Config{
				Order:        loader.Order{Shuffle: loader.Global},
				CacheOptions: loader.CacheOptions{Cache: "ram"},
				Images:       loader.Images{ImageSize: []int{224, 224}},
			},
			true,
		},
		{
			"dir",
			loader.Config{
				Order:        loader.Order{Shuffle: loader.Global},
				CacheOptions: loader.CacheOptions{Cache: "dir"},
			},
			true,
		},
		{
			"dir-224",
			loader.Config{
				Order:        loader.Order{Shuffle: loader.Global},
				CacheOptions: loader.CacheOptions{Cache: "dir"},
				Images:       loader.Images{ImageSize: []int{224, 224}},
			},
			true,
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := context.Background()
			ds := testdata(b, "g1_v30_exact")
			cfg := c.cfg
			cfg.BatchSize, cfg.Threads = 32, 2
			if cfg.Cache == "dir" {
				cfg.Cache = b.TempDir()
			}
			l, err := loader.New(ctx, ds, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			epoch := func() (n int) {
				for {
					batch, err := l.Next(ctx)
					if errors.Is(err, io.EOF) {
						return n
					}
					if err != nil {
						b.Fatal(err)
					}
					n += batch.Rows
					batch.Release()
				}
			}
			if c.warm {
				epoch()
			}
			n, began, before := 0, time.Now(), cpu()
			b.ResetTimer()
			for range b.N {
				n += epoch()
			}
			b.ReportMetric((cpu()-before)/float64(n)*1000, "CPU-s/1000")
			b.ReportMetric(float64(n)/time.Since(began).Seconds(), "samples/s")
			s := l.Stats()
			b.ReportMetric(float64(s.FramesDecoded)/float64(s.Frames), "decoded/frame")
		})
	}
}
