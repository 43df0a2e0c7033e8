package store

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goatnote-inc/robocache"
)

// HTTPOptions configures an HTTP store. The zero value selects the defaults.
type HTTPOptions struct {
	// Headers for the store's own host, such as Authorization. They are not sent to other hosts
	// after a redirect.
	Header http.Header
	// Number of consecutive failures without progress that end an operation. 0 means 6.
	Attempts int
	Stall    time.Duration // a connection without a byte for this time is reset; 0 means 20 s
	// Time limit of one operation, including waits, in addition to the time for its bytes. 0 means
	// 2 min.
	Timeout time.Duration
	// Bytes per second that an operation must reach. 0 means 128 KiB.
	MinRate int64
	// First delay between attempts. It doubles up to 32 times its value, with full jitter. 0 means
	// 100 ms.
	Backoff time.Duration
	// Size of the largest file that is held in memory if the server has no ranges. 0 means 64 MiB.
	Spool        int64
	Conns        int               // connections per host; 0 means 64
	AllowPrivate bool              // allow redirects to private and loopback addresses
	Transport    http.RoundTripper // nil selects a transport with pooled connections

	// The fields below adapt the store to protocols over HTTP; s3, gs and hf set them.
	URI string // name of the store in place of its URL
	// Sign adds credentials to a request to the store's own host. It is called for each attempt.
	Sign func(r *http.Request) error
	// Explain adds the content of an error response (its first 4 KiB) to e. It reports whether
	// another attempt may succeed.
	Explain func(r *http.Response, body []byte, e *robocache.Error) (again bool)
	// Wrap wraps the store's transport.
	Wrap func(http.RoundTripper) http.RoundTripper
	// VersionHeader is the response header with an object's version, and MatchHeader the request
	// header that demands one. "" means ETag and If-Match. MatchHeader "-" means none, for objects
	// that never change. If a response redirects to another host, its VersionHeader takes
	// precedence over that host's ETag.
	VersionHeader, MatchHeader string
	// Versions lists the files below a folder with their versions. It is nil if the protocol cannot
	// list.
	Versions func(ctx context.Context, dir string) ([]Entry, error)
}

// withDefaults returns o with the default of each option that is not set.
func (o HTTPOptions) withDefaults() HTTPOptions {
	setDefault(&o.Stall, 20*time.Second)
	setDefault(&o.Timeout, 2*time.Minute)
	setDefault(&o.Backoff, 100*time.Millisecond)
	setDefault(&o.Attempts, 6)
	setDefault(&o.MinRate, 128<<10)
	setDefault(&o.Spool, 64<<20)
	setDefault(&o.Conns, 64)
	o.VersionHeader = cmp.Or(o.VersionHeader, "ETag")
	o.MatchHeader = cmp.Or(o.MatchHeader, "If-Match")
	return o
}

// setDefault sets *v to value if *v is not positive.
func setDefault[T int | int64 | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// HTTP is a read-only store on a web server. It cannot list files. Safe for concurrent use.
type HTTP struct {
	base      *url.URL // its query may hold secrets: never print it
	auth      string   // Authorization header made from the URL's user and password
	uri       string   // without secrets
	options   HTTPOptions
	client    *http.Client
	gate      gate
	slots     chan struct{} // one per connection; waiting for a slot does not count as a stall
	readCache atomic.Pointer[readCache]
	// accepted is set when a request with credentials succeeded.
	accepted atomic.Bool
}

// NewHTTP returns a store of the files below an http(s) URL. A query in the URL, such as a
// signature for a folder, is sent with every request. A user and password become basic
// authorization. Neither appears in messages.
func NewHTTP(uri string, opt HTTPOptions) (*HTTP, error) {
	bad := func(msg string) (*HTTP, error) {
		// The message of url.Parse is omitted, because it quotes the URL and its secrets.
		return nil, robocache.Malformed(
			"open",
			robocache.Where{"dataset": quoteName(robocache.Redact(uri))},
			"%s",
			msg,
		)
	}
	u, err := url.Parse(uri)
	if err != nil {
		return bad("not a URL")
	}
	u.Scheme = strings.ToLower(u.Scheme)
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		return bad("not an http(s) URL with a host")
	}
	h := &HTTP{options: opt.withDefaults()}
	h.slots = make(chan struct{}, h.options.Conns)
	if u.User != nil {
		r := http.Request{Header: http.Header{}}
		pass, _ := u.User.Password()
		r.SetBasicAuth(u.User.Username(), pass)
		h.auth = r.Header.Get("Authorization")
		u.User = nil
	}
	u.Fragment, u.RawFragment = "", ""
	h.base = u
	h.uri = cmp.Or(opt.URI, u.Scheme+"://"+u.Host+strings.TrimRight(u.EscapedPath(), "/"))
	rt := opt.Transport
	if rt == nil {
		rt = newTransport(u, h.options)
	}
	if opt.Wrap != nil {
		rt = opt.Wrap(rt)
	}
	h.client = &http.Client{Transport: rt, CheckRedirect: h.checkRedirect}
	return h, nil
}

// URI returns the root's URL without user, password, query and fragment.
func (h *HTTP) URI() string { return h.uri }

// String returns the URI, so that %v prints no secrets.
func (h *HTTP) String() string { return h.uri }

// GoString returns the URI, so that %#v prints no secrets.
func (h *HTTP) GoString() string { return h.uri }

// Remote returns true, because each read is a request.
func (h *HTTP) Remote() bool { return true }

// Close closes the idle connections.
func (h *HTTP) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// fileURL returns the URL of a clean name. It escapes each part, so that "?" and "%2e" are parts of
// the name.
func (h *HTTP) fileURL(name string) *url.URL {
	u := *h.base
	var b strings.Builder
	b.WriteString(strings.TrimRight(u.EscapedPath(), "/"))
	for part := range strings.SplitSeq(name, "/") {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(part))
	}
	u.RawPath = b.String()
	u.Path = strings.TrimRight(u.Path, "/") + "/" + name
	return &u
}

// openRead is the number of bytes that Open reads. They usually include the index of an mp4 file or
// a small table, and cost less than another request.
const openRead = 16 << 10

// Open opens a file. It determines size and version with a range request from the first byte,
// because servers and signatures may reject HEAD. If the server has no ranges, a file of at most
// HTTPOptions.Spool bytes is read into memory, and a larger one is ErrUnsupported.
func (h *HTTP) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	if name, err = cleanFor(ctx, h.uri, "open", name); err != nil {
		return nil, err
	}
	k := h.readCache.Load()
	if p, ok := k.pinnedVersion(name); ok {
		return &httpFile{h: h, name: name, pin: p}, nil
	}
	var f robocache.Ranged
	if err := h.runOperation(ctx, "open", name, 0, func(a *attempt) error {
		r, err := a.getRange(name, 0, openRead, nil)
		if err != nil {
			return err
		}
		if r.ranged {
			head := make([]byte, min(openRead, r.pin.size))
			if _, err := a.fillBuffer(r, head); err != nil {
				return err
			}
			f = &httpFile{h: h, name: name, pin: r.pin, head: head}
			k.pinVersion(name, r.pin)
			return nil
		}
		data, err := a.readBody(r, name, h.options.Spool)
		if errors.Is(err, errTooLong) {
			return unsupportedError(
				"open",
				h.uri,
				"the server answers no ranges, and the file is too large to hold in memory ("+
					err.Error()+")",
				"use a server with range requests, or copy the dataset",
			)
		}
		f = &bytesFile{
			uri:     h.uri,
			name:    name,
			data:    data,
			version: r.pin.withSize(int64(len(data))).versionText(),
		}
		return err
	}); err != nil {
		return nil, err
	}
	return f, nil
}

// Stat returns the size and version of a file. It sends a range request of one byte.
func (h *HTTP) Stat(ctx context.Context, name string) (_ Entry, err error) {
	if name, err = cleanFor(ctx, h.uri, "stat", name); err != nil {
		return Entry{}, err
	}
	e := Entry{Name: name}
	if err := h.runOperation(ctx, "stat", name, 0, func(a *attempt) error {
		r, err := a.getRange(name, 0, 1, nil)
		if err != nil {
			return err
		}
		if r.pin.size < 0 {
			data, err := a.readBody(r, name, h.options.Spool)
			if err != nil {
				return err
			}
			r.pin.size = int64(len(data))
		} else if r.ranged {
			io.CopyN(io.Discard, r.body, 1)
		}
		e.Size = r.pin.size
		e.Version = r.pin.versionText()
		return nil
	}); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// List returns ErrUnsupported, because HTTP has no listing.
func (h *HTTP) List(ctx context.Context, prefix string) ([]Entry, error) {
	return nil, unsupportedError(
		"list",
		h.uri,
		"http cannot list files",
		"use a format whose file names are known, or copy the dataset",
	)
}

// readWholeFile reads a file in one request. After a reset it continues at the next byte.
func (h *HTTP) readWholeFile(ctx context.Context, name string, limit int64) (_ []byte, err error) {
	if name, err = cleanFor(ctx, h.uri, "read", name); err != nil {
		return nil, err
	}
	limit = min(max(limit, 0), math.MaxInt64-1)
	k := h.readCache.Load()
	if data := k.cachedWhole(ctx, h, name, limit); data != nil {
		return data, nil
	}
	var data []byte
	done := 0
	var first *pin
	if err := h.runOperation(ctx, "read", name, 0, func(a *attempt) error {
		r, err := a.getRange(name, int64(done), limit+1, first)
		if err != nil {
			return err
		}
		if r.pin.size > limit {
			return tooLarge(h.uri, name, r.pin.size, limit)
		}
		if !r.ranged {
			data, err = a.readBody(r, name, limit)
			return err
		}
		if first == nil {
			first = &r.pin
			data = make([]byte, r.pin.size)
			a.extendDeadline(r.pin.size)
		}
		n, err := a.fillBuffer(r, data[done:])
		done += n
		return err
	}); err != nil {
		return nil, err
	}
	if first != nil {
		k.putWhole(h, name, *first, data)
	}
	return data, nil
}
