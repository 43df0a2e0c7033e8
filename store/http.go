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

// HTTPOptions are the choices of a store behind http(s). The zero value is a good one.
type HTTPOptions struct {
	// sent to the store's own host only, never after a redirect to another (Authorization …)
	Header http.Header
	// failures in a row without progress that end an operation; 0 = 6
	Attempts int
	Stall    time.Duration // no byte for so long counts as a reset; 0 = 20 s
	// time of one operation, waits included, beside that for its bytes; 0 = 2 min
	Timeout time.Duration
	// bytes a second under which an operation is given up; 0 = 128 KiB
	MinRate int64
	// first wait, doubled up to 50 times itself, with full jitter; 0 = 100 ms
	Backoff time.Duration
	// largest file that is held in memory where the server has no ranges; 0 = 64 MiB
	Spool        int64
	Conns        int               // connections to a host; 0 = 64
	AllowPrivate bool              // a redirect may lead to a private or loopback address
	Transport    http.RoundTripper // nil = an own one, with pooled connections

	// What another protocol over http adds; s3, gs and hf set these.
	URI string // what the store is called, in place of its URL
	// Sign adds to a request to the store's own host what only it may see. Each try is signed.
	Sign func(r *http.Request) error
	// Explain adds to an error what the body of a refusal says (its first 4 KiB), and says whether
	// another try may pass.
	Explain func(r *http.Response, body []byte, e *robocache.Error) (again bool)
	// Wrap stands before the own transport.
	Wrap func(http.RoundTripper) http.RoundTripper
	// VersionHeader names an object's version in answers, and MatchHeader asks for one; "" = ETag,
	// If-Match. MatchHeader "-": none, since objects never change. VersionHeader of an answer that
	// leads to another host counts above that host's own ETag.
	VersionHeader, MatchHeader string
	// Versions lists the files below a folder; nil where that is not possible.
	Versions func(ctx context.Context, dir string) ([]Entry, error)
}

func (o HTTPOptions) withDefaults() HTTPOptions {
	def(&o.Stall, 20*time.Second)
	def(&o.Timeout, 2*time.Minute)
	def(&o.Backoff, 100*time.Millisecond)
	def(&o.Attempts, 6)
	def(&o.MinRate, 128<<10)
	def(&o.Spool, 64<<20)
	def(&o.Conns, 64)
	o.VersionHeader, o.MatchHeader = cmp.Or(
		o.VersionHeader,
		"ETag",
	), cmp.Or(
		o.MatchHeader,
		"If-Match",
	)
	return o
}

// def sets what is not above 0.
func def[T int | int64 | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// HTTP is a read-only store behind a web server. It cannot list.
type HTTP struct {
	base   *url.URL // holds secrets (query): never printed
	auth   string   // Authorization made of the URL's user and password
	uri    string   // redacted
	opt    HTTPOptions
	client *http.Client
	gate   gate
	slots  chan struct{} // one for each connection: waiting for one is not a stall
	kept   atomic.Pointer[keeping]
	// accepted says that a request with credentials was answered.
	accepted atomic.Bool
}

// NewHTTP makes a store of the files below an http(s) URL. A query in the URL is sent with every
// request (a signature that holds for a folder); a user and password become basic authorization.
// Neither appears in messages.
func NewHTTP(uri string, opt HTTPOptions) (*HTTP, error) {
	bad := func(msg string) (*HTTP, error) {
		// Without url.Parse's own message: it quotes the URL, and with it what is secret.
		return nil, robocache.Malformed(
			"open",
			robocache.Where{"dataset": show(robocache.Redact(uri))},
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
	h := &HTTP{opt: opt.withDefaults()}
	h.slots = make(chan struct{}, h.opt.Conns)
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
		rt = newTransport(u, h.opt)
	}
	if opt.Wrap != nil {
		rt = opt.Wrap(rt)
	}
	h.client = &http.Client{Transport: rt, CheckRedirect: h.redirect}
	return h, nil
}

// URI is the root's URL without user, password, query and fragment.
func (h *HTTP) URI() string { return h.uri }

// String and GoString keep secrets out of a %v of the store.
func (h *HTTP) String() string   { return h.uri }
func (h *HTTP) GoString() string { return h.uri }

// Remote is true: each read is a request.
func (h *HTTP) Remote() bool { return true }

// Close gives the idle connections back.
func (h *HTTP) Close() error {
	h.client.CloseIdleConnections()
	return nil
}

// at is the URL of a clean name. Each part is escaped, so that a "?" or "%2e" in a name stays a
// name.
func (h *HTTP) at(name string) *url.URL {
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

// openRead is how much Open reads: an mp4's index or a small table is in it mostly, and it costs
// less than asking again.
const openRead = 16 << 10

// Open learns size and version with a range from the first byte on, because servers and signatures
// may refuse HEAD. Where the server has no ranges, a file of at most HTTPOptions.Spool bytes is
// read into memory, and a larger one is ErrUnsupported.
func (h *HTTP) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	if name, err = clean(ctx, h.uri, "open", name); err != nil {
		return nil, err
	}
	k := h.kept.Load()
	if p, ok := k.pin(name); ok {
		return &httpFile{h: h, name: name, pin: p}, nil
	}
	var f robocache.Ranged
	if err := h.do(ctx, "open", name, 0, func(a *attempt) error {
		r, err := a.get(name, 0, openRead, nil)
		if err != nil {
			return err
		}
		if r.ranged {
			head := make([]byte, min(openRead, r.pin.size))
			if _, err := a.fill(r, head); err != nil {
				return err
			}
			f = &httpFile{h: h, name: name, pin: r.pin, head: head}
			k.note(name, r.pin)
			return nil
		}
		data, err := a.spool(r, name, h.opt.Spool)
		if errors.Is(err, errTooLong) {
			return unsupported(
				"open",
				h.uri,
				"the server answers no ranges, and the file is too large to hold in memory ("+err.Error()+")",
				"use a server with range requests, or copy the dataset",
			)
		}
		f = &bytesFile{
			uri:     h.uri,
			name:    name,
			data:    data,
			version: r.pin.sized(int64(len(data))).version(),
		}
		return err
	}); err != nil {
		return nil, err
	}
	return f, nil
}

// Stat describes a file by a one-byte range request.
func (h *HTTP) Stat(ctx context.Context, name string) (_ Entry, err error) {
	if name, err = clean(ctx, h.uri, "stat", name); err != nil {
		return Entry{}, err
	}
	e := Entry{Name: name}
	if err := h.do(ctx, "stat", name, 0, func(a *attempt) error {
		r, err := a.get(name, 0, 1, nil)
		if err != nil {
			return err
		}
		if r.pin.size < 0 {
			data, err := a.spool(r, name, h.opt.Spool)
			if err != nil {
				return err
			}
			r.pin.size = int64(len(data))
		} else if r.ranged {
			io.CopyN(io.Discard, r.body, 1)
		}
		e.Size, e.Version = r.pin.size, r.pin.version()
		return nil
	}); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// List is ErrUnsupported: HTTP has no listing.
func (h *HTTP) List(ctx context.Context, prefix string) ([]Entry, error) {
	return nil, unsupported(
		"list",
		h.uri,
		"http cannot list files",
		"use a format whose file names are known, or copy the dataset",
	)
}

// readFile reads a whole file in one request, and after a reset goes on where it broke off.
func (h *HTTP) readFile(ctx context.Context, name string, limit int64) (_ []byte, err error) {
	if name, err = clean(ctx, h.uri, "read", name); err != nil {
		return nil, err
	}
	limit = min(max(limit, 0), math.MaxInt64-1)
	k := h.kept.Load()
	if data := k.whole(ctx, h, name, limit); data != nil {
		return data, nil
	}
	var data []byte
	done := 0
	var first *pin
	if err := h.do(ctx, "read", name, 0, func(a *attempt) error {
		r, err := a.get(name, int64(done), limit+1, first)
		if err != nil {
			return err
		}
		if r.pin.size > limit {
			return tooLarge(h.uri, name, r.pin.size, limit)
		}
		if !r.ranged {
			data, err = a.spool(r, name, limit)
			return err
		}
		if first == nil {
			first, data = &r.pin, make([]byte, r.pin.size)
			a.extend(r.pin.size)
		}
		n, err := a.fill(r, data[done:])
		done += n
		return err
	}); err != nil {
		return nil, err
	}
	if first != nil {
		k.keep(h, name, *first, data)
	}
	return data, nil
}
