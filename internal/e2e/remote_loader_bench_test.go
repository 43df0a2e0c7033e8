package e2e

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/internal/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// BenchmarkLoaderRemote is whole epochs of the loader from disk and from a server that takes 5 ms to answer, in turns: the ratio of the
// rates is what counts, and what is read for a sample.
func BenchmarkLoaderRemote(b *testing.B) {
	decoders(b)
	dir := realdata.Path(b, "g1_v30_exact")
	srv, err := loopback.Serve(dir, loopback.Options{Latency: 5 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	for _, shuffle := range []loader.Shuffle{loader.Global, loader.Pool} {
		b.Run(string(shuffle), func(b *testing.B) {
			var loaders []*loader.Loader
			for _, uri := range []string{dir, srv.URL} {
				l, err := loader.New(b.Context(), open(b, uri), loader.Config{BatchSize: 32, Shuffle: shuffle, Seed: 1, Threads: 2})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				loaders = append(loaders, l)
			}
			spent := make([]time.Duration, 2)
			n := 0
			requests, bytes := srv.Requests(), srv.Bytes()
			for range b.N {
				for i, l := range loaders {
					begin := time.Now()
					for {
						batch, err := l.Next(b.Context())
						if errors.Is(err, io.EOF) {
							break
						}
						if err != nil {
							b.Fatal(err)
						}
						n += batch.Rows
						batch.Release()
					}
					spent[i] += time.Since(begin)
				}
			}
			n /= 2
			b.ReportMetric(float64(n)/spent[0].Seconds(), "disk-samples/s")
			b.ReportMetric(float64(n)/spent[1].Seconds(), "http-samples/s")
			b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "http/disk")
			b.ReportMetric(float64(srv.Requests()-requests)/float64(n), "requests/sample")
			b.ReportMetric(float64(srv.Bytes()-bytes)/float64(n), "B/sample")
			s := loaders[1].Stats()
			b.ReportMetric(float64(s.BytesRead)/max(float64(s.BytesNeeded), 1), "read/needed")
		})
	}
}
