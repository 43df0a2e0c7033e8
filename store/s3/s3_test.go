package s3

import (
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

var quick = store.HTTPOptions{Backoff: time.Millisecond}

var buckets atomic.Int64

// bucket creates an empty bucket on a server and opens a folder of it.
func bucket(t testing.TB, url, prefix string) *Store {
	t.Helper()
	s, err := Open(fmt.Sprintf("bucket-%d/%s?endpoint=%s", buckets.Add(1), prefix, url), quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	_, err = s.Do(
		t.Context(),
		"make a bucket",
		"",
		store.Request{Method: http.MethodPut, URL: s.bucket},
	)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t testing.TB, s store.Writable, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := store.Put(t.Context(), s, name, data); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestS3 runs the store suite on real servers that share no code.
func TestS3(t *testing.T) {
	start := maps.Clone(servers.OtherS3)
	start["versitygw"] = func(t testing.TB) string { _, url := servers.S3(t); return url }
	for server, start := range start {
		t.Run(server, func(t *testing.T) {
			url := start(t)
			for _, prefix := range []string{"", "a folder/with + in%2525it"} {
				t.Run("prefix "+prefix, func(t *testing.T) {
					storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
						s := bucket(t, url, prefix)
						put(t, s, files)
						return storetest.Fixture{
							Store: s,
							Change: func(t testing.TB, name string, data []byte) {
								put(t, s, map[string][]byte{
									name: data,
								})
							},
						}
					})
				})
			}
		})
	}
}
