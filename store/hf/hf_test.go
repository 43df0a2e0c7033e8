package hf

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

const secret = "hf_hunter2hunter2"

// hub implements the paths of the Hub for one dataset, owner/name. Large files are on another host.
type hub struct {
	t        testing.TB
	url      string
	cdn      *httptest.Server
	files    map[string][]byte
	commit   string
	private  bool
	expire   atomic.Bool  // redirected links are rejected
	resolved atomic.Int64 // requests for the commit
	asked    atomic.Int64 // requests to the Hub itself
	fetched  atomic.Int64 // requests to the other host
	links    atomic.Int64
}

func oid(b []byte) string { return fmt.Sprintf("%x", sha1.Sum(b)) }

const large = 1000 // larger files are in LFS

var serial atomic.Int64

// newHub starts a hub and sets the environment to it and an empty cache.
func newHub(t testing.TB, files map[string][]byte) *hub {
	h := &hub{t: t, files: files, commit: oid([]byte(fmt.Sprint(t.Name(), serial.Add(1))))}
	h.cdn = httptest.NewServer(http.HandlerFunc(h.blob))
	srv := httptest.NewServer(h)
	h.url = srv.URL
	t.Cleanup(srv.Close)
	t.Cleanup(h.cdn.Close)
	home := t.TempDir()
	for k, v := range map[string]string{
		"HF_ENDPOINT":    srv.URL,
		"HF_HOME":        home,
		"HF_HUB_CACHE":   "",
		"HF_TOKEN":       "",
		"HF_TOKEN_PATH":  "",
		"HF_HUB_OFFLINE": "",
	} {
		t.(interface{ Setenv(k, v string) }).Setenv(k, v)
	}
	return h
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.asked.Add(1)
	if h.private && r.Header.Get("Authorization") != "Bearer "+secret {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(401)
		return
	}
	const api = "/api/datasets/owner/name/"
	switch p := r.URL.Path; {
	case strings.HasPrefix(p, api+"revision/"):
		h.resolved.Add(1)
		if rev := strings.TrimPrefix(p, api+"revision/"); rev != "main" && rev != "v1.0" {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
			w.WriteHeader(404)
			return
		}
		w.Header().Set("X-Repo-Commit", h.commit)
		json.NewEncoder(w).Encode(map[string]string{"sha": h.commit})
	case strings.HasPrefix(p, api+"tree/"+h.commit):
		h.tree(w, r, strings.Trim(strings.TrimPrefix(p, api+"tree/"+h.commit), "/"))
	case strings.HasPrefix(p, "/datasets/owner/name/resolve/"+h.commit+"/"):
		name := strings.TrimPrefix(p, "/datasets/owner/name/resolve/"+h.commit+"/")
		data, ok := h.files[name]
		if !ok {
			w.Header().Set("X-Error-Code", "EntryNotFound")
			w.WriteHeader(404)
			return
		}
		w.Header().Set("X-Repo-Commit", h.commit)
		if len(data) < large {
			w.Header().Set("ETag", `"`+oid(data)+`"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
			return
		}
		n := h.links.Add(1)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
		w.Header().Set("X-Linked-Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
		sig := fmt.Sprint("sig", n)
		h.expire.Store(false)
		http.Redirect(
			w,
			r,
			h.cdn.URL+"/"+fmt.Sprintf("%x", sha256.Sum256(data))+"?Signature="+sig+"-secret",
			http.StatusFound,
		)
	default:
		w.WriteHeader(404)
	}
}

// blob is the other host. It must not receive the token.
func (h *hub) blob(w http.ResponseWriter, r *http.Request) {
	h.fetched.Add(1)
	if r.Header.Get("Authorization") != "" {
		h.t.Error("the token went to another host")
	}
	if h.expire.Load() {
		w.WriteHeader(403)
		return
	}
	for _, data := range h.files {
		if strings.HasPrefix(r.URL.Path, fmt.Sprintf("/%x", sha256.Sum256(data))) {
			w.Header().Set("ETag", `"of the other host"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
			return
		}
	}
	w.WriteHeader(404)
}

// tree lists two entries per page.
func (h *hub) tree(w http.ResponseWriter, r *http.Request, dir string) {
	type lfs struct {
		OID string `json:"oid"`
	}
	type entry struct {
		Type string `json:"type"`
		Path string `json:"path"`
		OID  string `json:"oid"`
		Size int    `json:"size"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	all := map[string]entry{}
	deep := r.URL.Query().Get("recursive") == "true"
	for name, data := range h.files {
		rest, ok := name, true
		if dir != "" {
			rest, ok = strings.CutPrefix(name, dir+"/")
		}
		if !ok {
			continue
		}
		for i := range rest {
			if rest[i] == '/' {
				p := strings.TrimPrefix(dir+"/"+rest[:i], "/")
				if deep || !strings.Contains(rest[:i], "/") {
					all[p] = entry{Type: "directory", Path: p, OID: oid([]byte(p))}
				}
			}
		}
		if deep || !strings.Contains(rest, "/") {
			e := entry{Type: "file", Path: name, OID: oid(data), Size: len(data)}
			if len(data) >= large {
				e.LFS = &lfs{fmt.Sprintf("%x", sha256.Sum256(data))}
			}
			all[name] = e
		}
	}
	if len(all) == 0 && dir != "" {
		w.WriteHeader(404)
		return
	}
	var names []string
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	var from int
	fmt.Sscan(r.URL.Query().Get("cursor"), &from)
	page := []entry{}
	for _, n := range names[min(from, len(names)):min(from+2, len(names))] {
		page = append(page, all[n])
	}
	if from+2 < len(names) {
		q := r.URL.Query()
		q.Set("cursor", fmt.Sprint(from+2))
		w.Header().
			Set(
				"Link",
				fmt.Sprintf(`<%s%s?%s>; rel="next"`, h.url, r.URL.EscapedPath(), q.Encode()),
			)
	}
	json.NewEncoder(w).Encode(page)
}

// cache writes files of the dataset in the layout of huggingface_hub.
func (h *hub) cache(t testing.TB, names ...string) {
	root := filepath.Join(os.Getenv("HF_HOME"), "hub", "datasets--owner--name")
	write := func(p string, b []byte) {
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "refs", "main"), []byte(h.commit))
	for _, n := range names {
		data := h.files[n]
		blob := oid(data)
		if len(data) >= large {
			blob = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		write(filepath.Join(root, "blobs", blob), data)
		p := filepath.Join(root, "snapshots", h.commit, n)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		err := os.Symlink(strings.Repeat("../", strings.Count(n, "/")+2)+"blobs/"+blob, p)
		if err != nil {
			t.Fatal(err)
		}
	}
}

var quick = store.HTTPOptions{Backoff: time.Millisecond, Attempts: 3}

func open(t testing.TB, rest string) store.Store {
	t.Helper()
	s, err := Open(rest, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(s) })
	return s
}

// TestHub runs the store suite with all files from the Hub, with all files from the cache, for a
// folder, and offline.
func TestHub(t *testing.T) {
	for _, what := range []string{"hub", "cache", "folder", "offline"} {
		t.Run(what, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, files map[string][]byte) storetest.Fixture {
				rest := "datasets/owner/name"
				if what == "folder" {
					deep := map[string][]byte{"beside": []byte("x")}
					for n, b := range files {
						deep["a folder/b/"+n] = b
					}
					files, rest = deep, rest+"@v1.0/a%20folder/b"
				}
				h := newHub(t, files)
				if what == "cache" || what == "offline" {
					var names []string
					for n := range files {
						names = append(names, n)
					}
					h.cache(t, names...)
				}
				if what == "offline" {
					os.Setenv("HF_HUB_OFFLINE", "1")
					if len(files) == 0 {
						h.files = map[string][]byte{"x": nil}
						h.cache(t, "x")
					}
				}
				return storetest.Fixture{Store: open(t, rest)}
			})
		})
	}
}

// TestFewQuestions checks that a process requests the commit once and each file's location once,
// and otherwise uses only the other host.
func TestFewQuestions(t *testing.T) {
	h := newHub(
		t,
		map[string][]byte{"a.bin": storetest.Bytes(200_000, 1), "meta.json": []byte("{}")},
	)
	for range 3 {
		s := open(t, "datasets/owner/name")
		f, err := s.Open(t.Context(), "a.bin")
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1000)
		for off := int64(20_000); off < 190_000; off += 17_000 {
			err := f.ReadAt(t.Context(), p, off)
			if err != nil || !bytes.Equal(p, h.files["a.bin"][off:off+1000]) {
				t.Fatal(err)
			}
		}
		if want := fmt.Sprintf(`"%x"`, sha256.Sum256(h.files["a.bin"])); f.Version() != want {
			t.Errorf("version %s", f.Version())
		}
	}
	if h.resolved.Load() != 1 || h.links.Load() != 3 || h.fetched.Load() < 30 {
		t.Errorf(
			"%d resolutions, %d links, %d ranges",
			h.resolved.Load(),
			h.links.Load(),
			h.fetched.Load(),
		)
	}
	// an expired link is requested again
	s := open(t, "datasets/owner/name")
	f, err := s.Open(t.Context(), "a.bin")
	if err != nil {
		t.Fatal(err)
	}
	h.expire.Store(true)
	p := make([]byte, 100)
	err = f.ReadAt(t.Context(), p, 50_000)
	if err != nil || !bytes.Equal(p, h.files["a.bin"][50_000:50_100]) {
		t.Fatal(err)
	}
}

func TestToken(t *testing.T) {
	h := newHub(t, map[string][]byte{"a.bin": storetest.Bytes(5000, 1), "b": []byte("b")})
	h.private = true
	s := open(t, "datasets/owner/name")
	_, err := s.Stat(t.Context(), "b")
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "HF_TOKEN") ||
		!strings.Contains(err.Error(), "RepoNotFound") {
		t.Fatalf("without a token: %v", err)
	}
	for what, set := range map[string]func(){
		"environment": func() { t.Setenv("HF_TOKEN", secret) },
		"file": func() {
			t.Setenv("HF_TOKEN", "")
			os.WriteFile(filepath.Join(os.Getenv("HF_HOME"), "token"), []byte(secret+"\n"), 0o600)
		},
	} {
		set()
		s := open(t, "datasets/owner/name")
		for n, want := range h.files {
			got, err := store.ReadFile(t.Context(), s, n, 1<<20)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s: %v", what, n, err)
			}
		}
		_, err := s.Open(t.Context(), "nope")
		text := fmt.Sprintf("%v %+v %v", err, s, s.URI())
		if !errors.Is(err, robocache.ErrNotFound) || strings.Contains(text, secret) ||
			strings.Contains(text, "Signature") {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// TestOffline checks that the cache serves its files without the Hub, and that other files are an
// error.
func TestOffline(t *testing.T) {
	h := newHub(
		t,
		map[string][]byte{"meta/a": []byte("a"), "b": storetest.Bytes(5000, 1), "c": []byte("c")},
	)
	t.Setenv("HF_HUB_OFFLINE", "1")
	if _, err := open(t, "datasets/owner/name").Stat(t.Context(), "b"); !errors.Is(err,
		robocache.ErrNotFound) || !strings.Contains(err.Error(), "hf download") {
		t.Fatalf("nothing cached: %v", err)
	}
	h.cache(t, "meta/a", "b")
	for _, gone := range []bool{false, true} {
		if gone { // the Hub is unreachable
			t.Setenv("HF_HUB_OFFLINE", "")
			t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
		}
		s := open(t, "datasets/owner/name@main")
		b, err := store.ReadFile(t.Context(), s, "b", 1<<20)
		if err != nil || !bytes.Equal(b, h.files["b"]) {
			t.Fatal(err)
		}
		if list, err := s.List(t.Context(), ""); err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		if _, err := s.Stat(t.Context(), "c"); !errors.Is(err, robocache.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if n := h.asked.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestForms(t *testing.T) {
	for _, bad := range []string{
		"",
		"owner/name",
		"datasets/owner",
		"models/owner/name",
		"datasets/../name",
		"datasets/o/n@",
		"datasets/o/n/../x",
		"datasets/o/n@../x",
		"datasets/o/n?x=1",
	} {
		s, err := Open(bad, quick)
		if err == nil ||
			!errors.Is(err, robocache.ErrMisuse) && !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
	}
	for uri, want := range map[string]string{
		"hf://datasets/o/n@v3.0/x":   "hf://datasets/o/n@v3.0/x",
		"hf://me:token@datasets/o/n": "hf://datasets/o/n",
	} {
		if got := robocache.Redact(uri); got != want {
			t.Errorf("Redact(%s) is %s", uri, got)
		}
	}
}
