package s3

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

var quick = store.HTTPOptions{Backoff: time.Millisecond}

var buckets atomic.Int64

// bucket makes an empty bucket of a server and opens a folder of it.
func bucket(t testing.TB, dir, url, prefix string) *Store {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := Open(name+"/"+prefix+"?endpoint="+url, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
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

// TestS3 holds the store to the contract, on a real server.
func TestS3(t *testing.T) {
	dir, url := servers.S3(t)
	for _, prefix := range []string{"", "a folder/with + in%2525it"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
				s := bucket(t, dir, url, prefix)
				put(t, s, files)
				return storetest.Fixture{Store: s, Change: func(t testing.TB, name string, data []byte) { put(t, s, map[string][]byte{name: data}) }}
			})
		})
	}
}
