package store_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

func fill(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// changeIn overwrites files in place. It waits for the resolution of mtime before, and for
// checkEvery after.
func changeIn(dir string) func(testing.TB, string, []byte) {
	return func(t testing.TB, name string, data []byte) {
		time.Sleep(12 * time.Millisecond)
		fill(t, dir, map[string][]byte{name: data})
		// The resolution of Last-Modified is one second, so a server without ETags needs a later
		// time.
		later := time.Now().Add(2 * time.Second)
		if err := os.Chtimes(filepath.Join(dir, name), later, later); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Millisecond)
	}
}

func localFixture(t testing.TB, files map[string][]byte) storetest.Fixture {
	dir := t.TempDir()
	fill(t, dir, files)
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(s) })
	return storetest.Fixture{Store: s, Change: changeIn(dir)}
}

func memFixture(t testing.TB, files map[string][]byte) storetest.Fixture {
	m := storetest.NewMem(t.Name())
	t.Cleanup(m.Drop)
	for name, data := range files {
		m.Put(name, data)
	}
	return storetest.Fixture{
		Store:  m,
		Change: func(t testing.TB, name string, data []byte) { m.Put(name, data) },
	}
}

func TestLocal(t *testing.T) { storetest.Run(t, localFixture) }
func TestMem(t *testing.T)   { storetest.Run(t, memFixture) }

// TestHTTP runs the suite with a real server, with and without ETags and ranges.
func TestHTTP(t *testing.T) {
	for what, wrap := range map[string]func(http.Handler) http.Handler{
		"last-modified": func(h http.Handler) http.Handler { return h },
		"etag":          withETag,
		"no ranges": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("Range")
				h.ServeHTTP(w, r)
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
				dir := t.TempDir()
				fill(t, dir, files)
				return storetest.Fixture{
					Store:  serve(t, wrap(folderListing(t, dir)), store.HTTPOptions{}),
					Change: changeIn(dir),
				}
			})
		})
	}
}

func TestSub(t *testing.T) {
	for what, fixture := range map[string]storetest.Opener{
		"local": localFixture,
		"mem":   memFixture,
	} {
		t.Run(what, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
				deep := map[string][]byte{"other": []byte("x"), "in/sidereal": []byte("y")}
				for name, data := range files {
					deep["in/side/"+name] = data
				}
				fx := fixture(t, deep)
				s, err := store.Sub(fx.Store, "in/side")
				if err != nil {
					t.Fatal(err)
				}
				return storetest.Fixture{
					Store: s,
					Change: func(t testing.TB, name string, data []byte) {
						fx.Change(t, "in/side/"+name, data)
					},
				}
			})
		})
	}
}

// TestDecorators checks that decorators without faults keep the contract of the wrapped store.
func TestDecorators(t *testing.T) {
	storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
		fx := localFixture(t, files)
		c := storetest.Counting(storetest.Faulty(fx.Store, &storetest.Plan{}))
		t.Cleanup(func() {
			if n := c.Counts(); n.UnderWrite != 0 {
				t.Errorf("writers not ended: %+v", n)
			}
		})
		return storetest.Fixture{Store: c, Change: fx.Change}
	})
}

// folderListing serves files as http.ServeContent does.
func folderListing(t testing.TB, dir string) http.Handler {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := root.Open(r.URL.Path[1:])
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || info.IsDir() {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "x.bin", info.ModTime(), f)
	})
}

func withETag(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, &http.Request{Method: "GET", URL: r.URL, Header: http.Header{}})
		sum := 0
		for i, b := range rec.Body.Bytes() {
			sum += (i + 1) * int(b)
		}
		w.Header().
			Set("ETag", `"`+rec.Header().Get("Content-Length")+"-"+time.Duration(sum).String()+`"`)
		h.ServeHTTP(w, r)
	})
}

// serve starts a server and opens a store on it with delays that are short enough for a test.
func serve(t testing.TB, h http.Handler, opt store.HTTPOptions) *store.HTTP {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	if opt.Backoff == 0 {
		opt.Backoff = time.Millisecond
	}
	s, err := store.NewHTTP(srv.URL, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
