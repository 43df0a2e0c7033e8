package store_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// BenchmarkHTTPReadAt reads ranges over loopback, with server and client in one process.
func BenchmarkHTTPReadAt(b *testing.B) {
	data := storetest.Bytes(16<<20, 1)
	s := serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(data))
	}), store.HTTPOptions{})
	f, err := s.Open(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{64 << 10, 4 << 20} {
		for _, flight := range []int{1, 8} {
			b.Run(fmt.Sprintf("%dKiB/parallel=%v", n>>10, flight > 1), func(b *testing.B) {
				b.SetBytes(int64(n))
				b.ReportAllocs()
				b.SetParallelism(flight) // times GOMAXPROCS
				if flight == 1 {         // a single goroutine
					p := make([]byte, n)
					for range b.N {
						if err := f.ReadAt(b.Context(), p, 4096); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					p := make([]byte, n)
					for pb.Next() {
						if err := f.ReadAt(b.Context(), p, 4096); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
