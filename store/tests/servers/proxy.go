package servers

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards requests to a real server and injects delays, faults and wrong responses.
type Proxy struct {
	URL             string
	Latency         time.Duration
	Requests, Bytes atomic.Int64
	// Strike returns the fault of the n-th request, from 1, or "". Faults lists the names.
	Strike func(n int64, r *http.Request) string
	// OwnHost sends the server's own name as the host. The default is the proxy's name, which an S3
	// client has signed.
	OwnHost bool
	seen    atomic.Int64
	to      *httputil.ReverseProxy
}

// NewProxy starts a proxy for the server at target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{}
	p.to = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			if r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host; p.OwnHost {
				r.Out.Host = u.Host
			}
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	srv := httptest.NewServer(p)
	p.URL = srv.URL
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return p
}

// counting counts the bytes of a body.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.Requests.Add(1)
	time.Sleep(p.Latency)
	if p.Strike != nil {
		if fault := p.Strike(p.seen.Add(1), r); fault != "" {
			p.faulty(fault, w, r)
			return
		}
	}
	p.to.ServeHTTP(&counting{w, &p.Bytes}, r)
}

// Faults lists the faults of reads and writes. "reset after" executes the request before the reset.
var Faults = []string{
	"503",
	"500",
	"429",
	"reset before",
	"reset after",
	"reset in the body",
	"short body",
	"stall",
	"changed",
	"403",
	"404",
	"expired",
}

func xmlError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Amz-Request-Id", "REQ-"+code)
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>m</Message></Error>", code)
}

func (p *Proxy) faulty(fault string, w http.ResponseWriter, r *http.Request) {
	switch fault {
	case "503":
		xmlError(w, 503, "SlowDown")
		return
	case "500":
		xmlError(w, 500, "InternalError")
		return
	case "429":
		w.Header().Set("Retry-After", "0")
		xmlError(w, 429, "TooManyRequests")
		return
	case "403":
		xmlError(w, 403, "AccessDenied")
		return
	case "404":
		xmlError(w, 404, "NoSuchKey")
		return
	case "expired":
		xmlError(w, 400, "ExpiredToken")
		return
	case "reset before":
		panic(http.ErrAbortHandler)
	}
	rec := httptest.NewRecorder()
	p.to.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	half := len(body) / 2
	switch fault {
	case "reset after":
		panic(http.ErrAbortHandler)
	case "short body": // complete according to its Content-Length
		w.Header().Set("Content-Length", strconv.Itoa(half))
		body = body[:half]
	case "changed":
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
	}
	w.WriteHeader(rec.Code)
	switch fault {
	case "reset in the body", "stall":
		io.Copy(w, bytes.NewReader(body[:half]))
		http.NewResponseController(w).Flush()
		if fault == "stall" {
			select {
			case <-r.Context().Done():
			case <-time.After(time.Minute):
			}
		}
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
}
