package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

var httpData = storetest.Bytes(400_000, 9)

// sound responds like a correct server.
func sound(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"v1"`)
	http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(httpData))
}

// hijack sends a header and part of the data, and closes the connection.
func hijack(w http.ResponseWriter, head string, body []byte) {
	c, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(buf, "HTTP/1.1 %s\r\n\r\n", head)
	buf.Write(body)
	buf.Flush()
	c.Close()
}

func span(r *http.Request) (from, to int) {
	fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	return from, min(to, len(httpData)-1)
}

// TestHTTPRetries checks that reads are correct after temporary faults (store.T8). Each fault
// affects requests 2 and 3, and request 1 if possible.
func TestHTTPRetries(t *testing.T) {
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			io.WriteString(w, "sorry")
		}
	}
	faults := map[string]http.HandlerFunc{
		"408":             status(408),
		"429":             status(429),
		"500":             status(500),
		"502":             status(502),
		"503":             status(503),
		"504":             status(504),
		"520":             status(520),
		"429 with a date": status(429, "Retry-After", time.Now().UTC().Format(http.TimeFormat)),
		"reset before the head": func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
		},
		"reset in the body": func(w http.ResponseWriter, r *http.Request) {
			from, to := span(r)
			hijack(
				w,
				fmt.Sprintf(
					"206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: "+
						"%d\r\nContent-Range: bytes %d-%d/%d",
					to-from+1,
					from,
					to,
					len(httpData),
				),
				httpData[from:from+(to-from)/2],
			)
		},
		"short body that says so": func(w http.ResponseWriter, r *http.Request) {
			from, to := span(r)
			mid := from + (to-from)/2
			hijack(
				w,
				fmt.Sprintf(
					"206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: "+
						"%d\r\nContent-Range: bytes %d-%d/%d",
					mid-from,
					from,
					to,
					len(httpData),
				),
				httpData[from:mid],
			)
		},
		"less range than asked for": func(w http.ResponseWriter, r *http.Request) {
			from, to := span(r)
			mid := from + (to-from)/2
			hijack(
				w,
				fmt.Sprintf(
					"206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: "+
						"%d\r\nContent-Range: bytes %d-%d/%d",
					mid-from+1,
					from,
					mid,
					len(httpData),
				),
				httpData[from:mid+1],
			)
		},
		"stall before the head": func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
		"stall in the body": func(w http.ResponseWriter, r *http.Request) {
			from, to := span(r)
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(httpData)))
			w.Header().Set("Content-Length", strconv.Itoa(to-from+1))
			w.WriteHeader(206)
			w.Write(httpData[from : from+(to-from)/2])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	}
	for what, fault := range faults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var opt store.HTTPOptions
			if strings.HasPrefix(what, "stall") {
				// A slow machine also stalls.
				opt = store.HTTPOptions{
					Stall:    100 * time.Millisecond,
					Attempts: 1000,
					Backoff:  time.Millisecond,
					Timeout:  time.Hour,
				}
			}
			for _, first := range []int64{1, 2} {
				var n atomic.Int64
				s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if k := n.Add(1); k >= first && k < first+2 {
						fault(w, r)
						return
					}
					sound(w, r)
				}), opt)
				f, err := s.Open(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				p := make([]byte, 300_000)
				if err := f.ReadAt(t.Context(), p, 50_000); err != nil ||
					!bytes.Equal(p, httpData[50_000:350_000]) {
					t.Fatalf("first %d: wrong bytes, or %v", first, err)
				}
				n.Store(0)
				b, err := store.ReadFile(t.Context(), s, "a", 1<<20)
				if err != nil || !bytes.Equal(b, httpData) {
					t.Fatalf("first %d: ReadFile: %d bytes, %v", first, len(b), err)
				}
			}
		})
	}
}

// TestHTTPResumesAtTheByte checks that only the rest is requested after a reset.
func TestHTTPResumesAtTheByte(t *testing.T) {
	var froms []int
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, to := span(r)
		froms = append(froms, from)
		if len(froms) == 2 {
			hijack(
				w,
				fmt.Sprintf(
					"206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: "+
						"%d\r\nContent-Range: bytes %d-%d/%d",
					to-from+1,
					from,
					to,
					len(httpData),
				),
				httpData[from:from+1000],
			)
			return
		}
		sound(w, r)
	}), store.HTTPOptions{})
	f, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 5000)
	err = f.ReadAt(t.Context(), p, 50_100)
	if err != nil || !bytes.Equal(p, httpData[50_100:55_100]) {
		t.Fatal(err)
	}
	if fmt.Sprint(froms) != "[0 50100 51100]" {
		t.Fatalf("asked from %v", froms)
	}
}

// TestHTTPGivesUp checks that permanent faults are typed errors after the expected number of
// requests. It would not end if an operation waited for the times in these responses.
func TestHTTPGivesUp(t *testing.T) {
	code := func(c int, kv ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if len(kv) == 2 {
				w.Header().Set(kv[0], kv[1])
			}
			w.WriteHeader(c)
		}
	}
	head := func(status string, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { hijack(w, status, []byte(body)) }
	}
	for _, c := range []struct {
		what     string
		h        http.HandlerFunc
		class    error
		cause    error
		requests int64
	}{
		{"404", code(404), robocache.ErrNotFound, fs.ErrNotExist, 1},
		{"410", code(410), robocache.ErrNotFound, fs.ErrNotExist, 1},
		{"401", code(401), robocache.ErrMisuse, fs.ErrPermission, 1},
		{"403", code(403), robocache.ErrMisuse, fs.ErrPermission, 1},
		{"400", code(400), robocache.ErrMisuse, nil, 1},
		{"501", code(501), robocache.ErrUnsupported, nil, 1},
		{"503 for ever", code(503), robocache.ErrTemporary, nil, 3},
		{"429 for ever", code(429), robocache.ErrTemporary, nil, 3},
		{"wait an hour", code(429, "Retry-After", "3600"), robocache.ErrTemporary, nil, 1},
		{
			"wait for ever",
			code(503, "Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"),
			robocache.ErrTemporary,
			nil,
			1,
		},
		{
			"stall for ever",
			func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			robocache.ErrTemporary,
			nil,
			3,
		},
		{
			"reset for ever",
			head("200 OK\r\nContent-Length: 100", "x"),
			robocache.ErrTemporary,
			io.ErrUnexpectedEOF,
			3,
		},
		{"no length", head("200 OK", "whole or cut?"), robocache.ErrUnsupported, nil, 1},
		{
			"no Content-Range",
			head("206 Partial Content\r\nContent-Length: 1", "x"),
			robocache.ErrUnsupported,
			nil,
			1,
		},
		{
			"hidden size",
			head("206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/*", "x"),
			robocache.ErrUnsupported,
			nil,
			1,
		},
		{
			"other range",
			head("206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 5-5/9", "x"),
			robocache.ErrMalformed,
			nil,
			1,
		},
		{
			"range past the end",
			head("206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 0-9/9", "x"),
			robocache.ErrUnsupported,
			nil,
			1,
		},
		{
			"compressed",
			head("200 OK\r\nContent-Length: 1\r\nContent-Encoding: gzip", "x"),
			robocache.ErrUnsupported,
			nil,
			1,
		},
		{"304", code(304), robocache.ErrMalformed, nil, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			opt := store.HTTPOptions{
				Attempts: 3,
				Timeout:  50 * time.Minute,
				Stall:    50 * time.Minute,
			}
			stalls := c.what == "stall for ever"
			if stalls {
				opt.Stall = 50 * time.Millisecond
			}
			s := serve(
				t,
				http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) { n.Add(1); c.h(w, r) },
				),
				opt,
			)
			_, err := s.Open(t.Context(), "a")
			if !errors.Is(err, c.class) || c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("%v", err)
			}
			requests := n.Load()
			if e := (*robocache.Error)(nil); stalls && requests < c.requests && errors.As(err, &e) {
				// A request that is canceled early may not reach the server.
				requests = int64(e.Where["attempts"].(int))
			}
			if requests != c.requests {
				t.Errorf("%d requests, want %d: %v", requests, c.requests, err)
			}
			_, err = store.ReadFile(t.Context(), s, "a", 1000)
			if !errors.Is(err, c.class) && c.what != "no Content-Range" {
				t.Errorf("ReadFile: %v", err)
			}
		})
	}
}

// TestHTTPDrip checks that a server that sends single bytes forever is ended by the operation's
// deadline.
func TestHTTPDrip(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, to := span(r); from > 0 {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(httpData)))
			w.WriteHeader(206)
			for i := from; i <= to && r.Context().Err() == nil; i++ {
				w.Write(httpData[i : i+1])
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
			}
			return
		}
		sound(w, r)
	}), store.HTTPOptions{Timeout: 200 * time.Millisecond, MinRate: 1 << 30})
	f, err := s.Open(t.Context(), "a")
	// a slow machine may reach the deadline here already
	for errors.Is(err, robocache.ErrTemporary) {
		f, err = s.Open(t.Context(), "a")
	}
	if err != nil {
		t.Fatal(err)
	}
	err = f.ReadAt(t.Context(), make([]byte, 1000), 50_000)
	if !errors.Is(err, robocache.ErrTemporary) {
		t.Error(err)
	}
}

// TestHTTPRetryAfter checks that Retry-After is respected, by other readers too.
func TestHTTPRetryAfter(t *testing.T) {
	var n, early atomic.Int64
	var until atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 2 {
			until.Store(time.Now().Add(time.Second).UnixNano())
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
			return
		}
		if time.Now().UnixNano() < until.Load()-int64(10*time.Millisecond) {
			early.Add(1)
		}
		sound(w, r)
	}), store.HTTPOptions{})
	f, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	read := func() { done <- f.ReadAt(t.Context(), make([]byte, 100), 50_000) }
	go read()
	for !store.Held(s) {
		time.Sleep(time.Millisecond)
	}
	go read()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if early.Load() != 0 {
		t.Error("a request came before the time that the server asked for")
	}
}

// TestHTTPChanged checks that a response with another version is ErrChanged at once, never a
// mixture (store.T9).
func TestHTTPChanged(t *testing.T) {
	other := storetest.Bytes(len(httpData), 10)
	for what, second := range map[string]http.HandlerFunc{
		"412 to If-Match": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v2"`)
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(other))
		},
		"other ETag on the range": func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-Match")
			w.Header().Set("ETag", `"v2"`)
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(other))
		},
		"other size": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(other[:390_000]))
		},
		"too short for the range": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(other[:10]))
		},
		"after a reset": func(w http.ResponseWriter, r *http.Request) {
			if from, to := span(r); from == 200_000 {
				hijack(
					w,
					fmt.Sprintf(
						"206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: "+
							"%d\r\nContent-Range: bytes %d-%d/%d",
						to-from+1,
						from,
						to,
						len(httpData),
					),
					httpData[from:from+1000],
				)
				return
			}
			r.Header.Del("If-Match")
			w.Header().Set("ETag", `"v2"`)
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(other))
		},
	} {
		var n atomic.Int64
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				sound(w, r)
				return
			}
			second(w, r)
		}), store.HTTPOptions{})
		f, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		err = f.ReadAt(t.Context(), make([]byte, 100_000), 200_000)
		if !errors.Is(err, store.ErrChanged) || !errors.Is(err, robocache.ErrTemporary) {
			t.Errorf("%s: %v", what, err)
		}
		if n.Load() > 3 {
			t.Errorf("%s: %d requests", what, n.Load())
		}
	}
}

// TestHTTPNoRanges checks that a large file on a server without ranges is rejected before it is
// read.
func TestHTTPNoRanges(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		sound(w, r)
	}), store.HTTPOptions{Spool: 1000})
	if _, err := s.Open(t.Context(), "a"); !errors.Is(err, robocache.ErrUnsupported) {
		t.Errorf("Open: %v", err)
	}
	if e, err := s.Stat(t.Context(), "a"); err != nil || e.Size != int64(len(httpData)) {
		t.Errorf("Stat: %+v, %v", e, err)
	}
	chunked := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(httpData); i += 50_000 {
			w.Write(httpData[i : i+50_000])
			w.(http.Flusher).Flush()
		}
	}), store.HTTPOptions{})
	b, err := store.ReadFile(t.Context(), chunked, "a", 1<<20)
	if err != nil || !bytes.Equal(b, httpData) {
		t.Errorf("chunked: %d bytes, %v", len(b), err)
	}
	_, err = store.ReadFile(t.Context(), chunked, "a", 1000)
	if !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("chunked over the limit: %v", err)
	}
}

// TestHTTPCancel checks that canceling ends a stall and a wait that would outlast the test.
func TestHTTPCancel(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{
		"stall": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"wait": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "3000")
			w.WriteHeader(503)
		},
	} {
		s := serve(t, h, store.HTTPOptions{Stall: time.Hour, Timeout: time.Hour})
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := s.Open(ctx, "a")
		stop()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestHTTPSecrets checks that no message contains a secret and that no other host receives one
// (store.T10).
func TestHTTPSecrets(t *testing.T) {
	const secret = "hunter2"
	var leaked atomic.Value
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := fmt.Sprint(r.Header)
		if strings.Contains(text, secret) || r.Header.Get("Authorization") != "" {
			leaked.Store(text)
		}
		sound(w, r)
	}))
	defer foreign.Close()
	modes := map[string]http.HandlerFunc{
		"403": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) },
		"503": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) },
		"reset": func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
		},
		"nonsense": func(w http.ResponseWriter, r *http.Request) {
			hijack(w, "abc http://x/?sig="+secret, nil)
		},
		"bad location": func(w http.ResponseWriter, r *http.Request) {
			hijack(w, "302 Found\r\nLocation: http://[bad?sig="+secret, nil)
		},
		"closed port": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/?sig="+secret, http.StatusFound)
		},
		"metadata address": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/?sig="+secret, http.StatusFound)
		},
		"loop": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/a?sig="+secret, http.StatusFound)
		},
		"file": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd?sig="+secret, http.StatusFound)
		},
	}
	for what, h := range modes {
		srv := httptest.NewServer(h)
		u := strings.Replace(srv.URL, "http://", "http://user:"+secret+"@", 1) + "/set?sig=" +
			secret + "#" + secret
		s, err := store.NewHTTP(u, store.HTTPOptions{
			Attempts: 2,
			Backoff:  time.Millisecond,
			Header:   http.Header{"X-Api-Key": {secret}},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Open(t.Context(), "a")
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		_, lerr := s.List(t.Context(), "")
		text := fmt.Sprintf("%v %+v %#v %v %v %+v %#v", err, err, err, lerr, s, s, s) + s.URI()
		for e := err; e != nil; e = errors.Unwrap(e) {
			text += e.Error()
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: leaks: %s", what, text)
		}
		srv.Close()
	}
	// Headers received by the user's own host, and by another host after a redirect.
	var got atomic.Value
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		got.Store(fmt.Sprint(user, pass, r.URL.RawQuery, r.Header.Get("X-Api-Key")))
		http.Redirect(w, r, foreign.URL+"/x", http.StatusFound)
	}))
	defer own.Close()
	s, err := store.NewHTTP(
		strings.Replace(own.URL, "http://", "http://user:"+secret+"@", 1)+"/set?sig="+secret,
		store.HTTPOptions{Header: http.Header{"X-Api-Key": {secret}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if b, err := store.ReadFile(t.Context(), s, "a", 1<<20); err != nil ||
		!bytes.Equal(b, httpData) {
		t.Fatalf("over a redirect: %v", err)
	}
	if want := "user" + secret + "sig=" + secret + secret; got.Load() != want {
		t.Errorf("the own host got %q", got.Load())
	}
	if leaked.Load() != nil {
		t.Errorf("another host got %v", leaked.Load())
	}
	for _, bad := range []string{
		"http://user:" + secret + "@",
		"https://user:hun\nter2@h/",
		"http://u:" + secret + "@h:port/x?sig=" + secret,
		"http://u:a/" + secret + "@h/",
		"http://[::1/?x=" + secret,
	} {
		_, err := store.Open(bad)
		if !errors.Is(err, robocache.ErrMalformed) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
}

// TestHTTPFewRequests checks that neighboring ranges share a request.
func TestHTTPFewRequests(t *testing.T) {
	var n atomic.Int64
	s := serve(
		t,
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.Add(1); sound(w, r) }),
		store.HTTPOptions{},
	)
	f, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	n.Store(0)
	var spans []store.Span
	for i := range 50 {
		spans = append(spans, store.Span{Off: int64(i * 8000), P: make([]byte, 1000)})
	}
	if err := store.ReadRanges(t.Context(), f, spans); err != nil || n.Load() != 1 {
		t.Errorf("%d requests, %v", n.Load(), err)
	}
	n.Store(0)
	if _, err := store.ReadFile(t.Context(), s, "a", 1<<20); err != nil || n.Load() != 1 {
		t.Errorf("ReadFile: %d requests, %v", n.Load(), err)
	}
}
