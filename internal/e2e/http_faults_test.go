package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// misbehave fails the nth request and every third one after it, so that a retry succeeds. Or it
// fails all requests from the nth on.
type misbehave struct {
	files  http.Handler
	dir    string
	nth    int64
	always bool
	seen   atomic.Int64
	strike func(w http.ResponseWriter, r *http.Request, dir string)
}

func (m *misbehave) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := m.seen.Add(1)
	if m.nth > 0 && n >= m.nth && (m.always || (n-m.nth)%3 == 0) {
		m.strike(w, r, m.dir)
		return
	}
	m.files.ServeHTTP(w, r)
}

// answer returns the right bytes of the requested range.
func answer(r *http.Request, dir string) (head string, body []byte) {
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		return "HTTP/1.1 404 Not Found\r\nContent-Length: 0", nil
	}
	st, _ := os.Stat(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
	timestamp := "\r\nLast-Modified: " + st.ModTime().UTC().Format(http.TimeFormat)
	var from, to int
	if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 &&
		from < len(data) {
		to = min(to, len(data)-1)
		return fmt.Sprintf(
			"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d%s",
			from,
			to,
			len(data),
			to-from+1,
			timestamp,
		), data[from : to+1]
	}
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d%s", len(data), timestamp), data
}

func raw(w http.ResponseWriter, head string, body []byte) {
	c, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	buf.WriteString(head + "\r\n\r\n")
	buf.Write(body)
	buf.Flush()
	c.Close()
}

var strikes = map[string]func(w http.ResponseWriter, r *http.Request, dir string){
	"503": func(w http.ResponseWriter, r *http.Request, dir string) { w.WriteHeader(503) },
	"429": func(w http.ResponseWriter, r *http.Request, dir string) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(429)
	},
	"reset before": func(w http.ResponseWriter, r *http.Request, dir string) { raw(w, "", nil) },
	"reset mid-body": func(w http.ResponseWriter, r *http.Request, dir string) {
		head, body := answer(r, dir)
		raw(w, head, body[:len(body)/2])
	},
	"short body with 200": func(w http.ResponseWriter, r *http.Request, dir string) {
		_, body := answer(r, dir)
		raw(
			w,
			fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d", len(body)/2),
			body[:len(body)/2],
		)
	},
	"another ETag": func(w http.ResponseWriter, r *http.Request, dir string) {
		head, body := answer(r, dir)
		raw(w, head+"\r\nETag: \"other\"", body)
	},
	"another size": func(w http.ResponseWriter, r *http.Request, dir string) {
		head, body := answer(r, dir)
		head = strings.Replace(
			head,
			"/"+fmt.Sprint(sizeOf(r, dir))+"\r\n",
			"/"+fmt.Sprint(sizeOf(r, dir)+1)+"\r\n",
			1,
		)
		raw(w, head, body)
	},
	"another range": func(w http.ResponseWriter, r *http.Request, dir string) {
		head, body := answer(r, dir)
		raw(w, strings.Replace(head, "Content-Range: bytes ", "Content-Range: bytes 1", 1), body)
	},
	"stall": func(w http.ResponseWriter, r *http.Request, dir string) {
		head, body := answer(r, dir)
		c, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		buf.WriteString(head + "\r\n\r\n")
		buf.Write(body[:len(body)/3])
		buf.Flush()
		io.Copy(io.Discard, c) // until the client gives up
	},
	"garbage": func(w http.ResponseWriter, r *http.Request, dir string) {
		raw(w, "SSH-2.0-OpenSSH_9.2", []byte("\x00\x01\x02"))
	},
	"500": func(w http.ResponseWriter, r *http.Request, dir string) { w.WriteHeader(500) },
	"401": func(w http.ResponseWriter, r *http.Request, dir string) { w.WriteHeader(401) },
	// an expired signature
	"403": func(w http.ResponseWriter, r *http.Request, dir string) { w.WriteHeader(403) },
	"404": func(w http.ResponseWriter, r *http.Request, dir string) { w.WriteHeader(404) },
	"redirect to metadata": func(w http.ResponseWriter, r *http.Request, dir string) {
		http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusFound)
	},
}

func sizeOf(r *http.Request, dir string) int64 {
	st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		return 0
	}
	return st.Size()
}

// e2e.C2: a server misbehaves now and then, or always from some request on. The result is exact
// data or a typed error, in time.
func TestHTTPFaults(t *testing.T) {
	decoders(t)
	dir := load(t, small).disk(t)
	cfg := loader.Config{
		Order: loader.Order{
			BatchSize: 10,
			Shuffle:   loader.Global,
			Seed:      2,
			Episodes:  []int{0, 30, 65},
		},
		Runtime: loader.Runtime{Prefetch: 2, Threads: 2},
	}
	wantSum, _, err := digest(t.Context(), open(t, dir), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The outcome does not depend on time limits, except for a silent server. Its limit must also
	// allow for pauses of a slow machine.
	patient := store.HTTPOptions{
		Backoff:  time.Millisecond,
		Stall:    time.Hour,
		Timeout:  time.Hour,
		Attempts: 8,
	}
	silent := store.HTTPOptions{
		Backoff:  time.Millisecond,
		Stall:    60 * time.Millisecond,
		Timeout:  time.Hour,
		Attempts: 1000,
	}
	mute := store.HTTPOptions{
		Backoff:  time.Millisecond,
		Stall:    60 * time.Millisecond,
		Timeout:  time.Second,
		Attempts: 8,
	}
	// told reports whether opening found that something is missing.
	run := func(m *misbehave, opt store.HTTPOptions) (digested string, told bool, err error) {
		srv := httptest.NewServer(m)
		defer srv.Close()
		defer srv.CloseClientConnections()
		const secret = "hunter2"
		s, err := store.NewHTTP(
			strings.Replace(srv.URL, "http://", "http://me:"+secret+"@", 1)+"?sig="+secret,
			opt,
		)
		if err != nil {
			return "", false, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), hangs)
		defer cancel()
		counter := storetest.Counting(s)
		ds, err := lerobot.OpenStore(ctx, counter, robocache.OpenOptions{})
		if err != nil {
			s.Close()
			return "", false, err
		}
		told = len(ds.Info().Findings) > 0
		sum, _, err := digest(ctx, ds, cfg)
		if cerr := ds.Close(); cerr != nil {
			t.Error("close:", cerr)
		}
		if n := counter.Counts().OpenFiles; n != 0 {
			t.Errorf("%d files left open after %v", n, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("hangs")
		}
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("the message holds a secret: %v", err)
		}
		return sum, told, err
	}
	clean := &misbehave{files: http.FileServer(http.Dir(dir)), dir: dir}
	if sum, told, err := run(clean, patient); err != nil || told || sum != wantSum {
		t.Fatal("a sound server:", sum, told, err)
	}
	requests := clean.seen.Load()
	t.Logf("a run is %d requests", requests)
	for name, strike := range strikes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := int64(4)
			if testing.Short() || name == "stall" {
				step = 23
			}
			right, typed := 0, 0
			for _, always := range []bool{false, true} {
				for n := int64(1); n <= requests+2; n += step {
					if always && n%8 != 1 { // some positions are enough if it fails always
						continue
					}
					m := &misbehave{
						files:  clean.files,
						dir:    dir,
						nth:    n,
						always: always,
						strike: strike,
					}
					opt := patient
					if name == "stall" {
						if opt = silent; always {
							opt = mute
						}
					}
					sum, told, err := run(m, opt)
					sound(t, err)
					switch {
					case err == nil && name == "404" && told:
						// the server reports that the files of a camera do not exist; this becomes
						// a finding
						typed++
					case err == nil && sum != wantSum:
						t.Fatalf("request %d (always %v): other data without an error", n, always)
					case err == nil:
						right++
					default:
						typed++
						var e *robocache.Error
						if errors.As(err, &e) && e.Where["file"] == nil {
							t.Errorf(
								"request %d (always %v): the error names no file: %v",
								n,
								always,
								err,
							)
						}
						if hints := name == "500" || name == "503" || name == "429" ||
							name == "reset before" ||
							name == "reset mid-body" ||
							name == "stall"; hints &&
							!always {
							t.Errorf("request %d: a fault that passes was not fixed: %v", n, err)
						}
					}
				}
			}
			t.Logf("%d runs right, %d ended with a typed error", right, typed)
		})
	}
}
