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
	resp, err := http.Post(
		url+"/storage/v1/b?project=p",
		"application/json",
		strings.NewReader(`{"name":"`+name+`"}`),
	)
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

// TestGS tests the store with the suite on fake-gcs-server.
func TestGS(t *testing.T) {
	url := servers.GCS(t)
	for _, prefix := range []string{"", "a folder/b"} {
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
}

// TestFaults checks that a write whose response was lost is recognized by its bytes, and that the
// error of a failing server names the object.
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
				if !errors.As(err, &e) || e.Where["file"] != name ||
					!errors.Is(err, robocache.ErrTemporary) && fault != "403" {
					t.Errorf("%s: %v", name, err)
				}
			} else if got, rerr := store.ReadFile(t.Context(), near, name, 10); err != nil ||
				rerr != nil || !bytes.Equal(got, []byte("text")) {
				t.Errorf("%s: %v, %q, %v", name, err, got, rerr)
			}
			s.Close()
		}
	}
}

// TestUploadGoesOn checks that a large object is uploaded in pieces and that the upload continues
// after any failed request. The test server stores a piece twice if its response was lost; Google
// ignores the bytes that it has. Only the last response is therefore lost here.
func TestUploadGoesOn(t *testing.T) {
	url := servers.GCS(t)
	near := bucket(t, url, "")
	was := singleUploadMax
	singleUploadMax, pieceSize = 256<<10, 256<<10
	defer func() { singleUploadMax, pieceSize = was, 16<<20 }()
	data := make([]byte, 1000<<10) // four pieces after the request that begins the upload
	for i := range data {
		data[i] = byte(i >> 9 * 37)
	}
	for _, fault := range []string{"503", "reset before", "reset after"} {
		for at := int64(1); at <= 5; at++ {
			if fault == "reset after" && at > 1 && at < 5 {
				continue
			}
			far := servers.NewProxy(t, url)
			far.OwnHost = true
			far.Strike = func(i int64, r *http.Request) string {
				if i == at {
					return fault
				}
				return ""
			}
			s, err := Open(near.bucket+"/a b?endpoint="+far.URL, quick)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint(fault, at)
			if err := store.PutNew(t.Context(), s, name, data); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got, err := store.ReadFile(t.Context(), near, "a b/"+
				name, 1<<20); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			} else if n := far.Requests.Load(); fault != "reset after" && n != 6 {
				t.Errorf("%s: %d requests: more than the piece was sent again", name, n)
			}
			err = store.PutNew(t.Context(), s, name, data[1:])
			if !errors.Is(err, store.ErrExists) {
				t.Errorf("a second writer: %v", err)
			}
			s.Close()
		}
	}
}
