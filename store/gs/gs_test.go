package gs

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

var quick = store.HTTPOptions{Backoff: time.Millisecond, Attempts: 3}

var buckets atomic.Int64

func bucket(t testing.TB, url, prefix string) *Store {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	resp, err := http.Post(url+"/storage/v1/b?project=p", "application/json", strings.NewReader(`{"name":"`+name+`"}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(err, resp)
	}
	resp.Body.Close()
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

// TestGS holds the store to the contract, on fake-gcs-server.
func TestGS(t *testing.T) {
	url := servers.GCS(t)
	for _, prefix := range []string{"", "a folder/b"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
				s := bucket(t, url, prefix)
				put(t, s, files)
				return storetest.Fixture{Store: s, Change: func(t testing.TB, name string, data []byte) { put(t, s, map[string][]byte{name: data}) }}
			})
		})
	}
}

// A write whose answer is lost is known by its bytes; a server that fails is an error that names the object.
func TestFaults(t *testing.T) {
	url := servers.GCS(t)
	near := bucket(t, url, "")
	for _, fault := range []string{"503", "reset before", "reset after", "403"} {
		for _, always := range []bool{false, true} {
			far := servers.NewProxy(t, url)
			far.OwnHost = true
			far.Strike = func(i int64, r *http.Request) string {
				if r.Method == http.MethodPost && (i == 1 || always) {
					return fault
				}
				return ""
			}
			s, err := Open(near.bucket+"?endpoint="+far.URL, quick)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint(fault, always)
			err = store.PutNew(t.Context(), s, name, []byte("text"))
			var e *robocache.Error
			if always || fault == "403" {
				if !errors.As(err, &e) || e.Where["file"] != name || !errors.Is(err, robocache.ErrTemporary) && fault != "403" {
					t.Errorf("%s: %v", name, err)
				}
			} else if got, rerr := store.ReadFile(t.Context(), near, name, 10); err != nil || rerr != nil || !bytes.Equal(got, []byte("text")) {
				t.Errorf("%s: %v, %q, %v", name, err, got, rerr)
			}
			s.Close()
		}
	}
}
