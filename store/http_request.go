package store

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
)

// pin is what a server said of an object; every later answer must say the same.
type pin struct {
	size     int64 // -1: not said
	etag     string
	modified string // Last-Modified
	// modified lies so far before the answer that another change would have shown in it: its grain
	// is a second
	settled bool
}

func (p pin) sized(size int64) pin {
	p.size = size
	return p
}

func settled(h http.Header) bool {
	at, err := http.ParseTime(h.Get("Last-Modified"))
	now, nowErr := http.ParseTime(h.Get("Date"))
	return err == nil && nowErr == nil && now.Sub(at) >= 2*time.Second
}

// version is the ETag, or size and Last-Modified.
func (p pin) version() string {
	if p.etag != "" {
		return p.etag
	}
	if p.modified != "" {
		return strconv.FormatInt(p.size, 10) + "-" + p.modified
	}
	return strconv.FormatInt(p.size, 10)
}

// same compares what both answers say. A weak ETag counts by its text: we ask for the bytes as
// stored, not compressed.
func (p pin) same(q pin) bool {
	if p.size >= 0 && q.size >= 0 && p.size != q.size {
		return false
	}
	if p.etag != "" && q.etag != "" {
		return strings.TrimPrefix(p.etag, "W/") == strings.TrimPrefix(q.etag, "W/")
	}
	return p.modified == "" || q.modified == "" || p.modified == q.modified
}

// reply is an answer that has bytes for us.
type reply struct {
	body   io.Reader // closed when the attempt ends
	pin    pin
	ranged bool  // the body is the range asked for, or its beginning; else it is the whole object
	length int64 // of the body; -1: not said
}

// get asks for [off, end) of name and checks status, place and version of the answer.
func (a *attempt) get(name string, off, end int64, want *pin) (*reply, error) {
	h := a.h
	header := http.Header{
		"Range": {"bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(end-1, 10)},
	}
	if want != nil && want.etag != "" && !strings.HasPrefix(want.etag, "W/") &&
		h.opt.MatchHeader != "-" {
		header.Set(h.opt.MatchHeader, want.etag)
	}
	resp, err := a.send(http.MethodGet, h.at(name), header, nil)
	if err == nil && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && off == 0 &&
		want == nil &&
		resp.Header.Get(h.opt.VersionHeader) == "" {
		// an empty object has no first byte, and its version is said where none is asked for
		a.discard()
		resp, err = a.send(http.MethodGet, h.at(name), nil, nil)
	}
	if err != nil {
		return nil, err
	}
	r, err := h.check(resp, name, off, want)
	if err != nil {
		a.discard()
		return nil, err
	}
	return r, nil
}

// send sends a request with what the store adds to each.
func (a *attempt) send(
	method string,
	u *url.URL,
	header http.Header,
	body *io.SectionReader,
) (*http.Response, error) {
	h := a.h
	req := (&http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(
		a.ctx,
	)
	for _, from := range []http.Header{h.opt.Header, header} {
		for k, v := range from {
			req.Header[http.CanonicalHeaderKey(k)] = v
		}
	}
	if h.auth != "" && req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", h.auth)
	}
	req.Header.Set("Accept-Encoding", "identity") // a compressed body has other offsets
	req.Header.Set("User-Agent", "robocache")
	if body != nil {
		if req.ContentLength = body.Size(); req.ContentLength > 0 {
			req.Body = io.NopCloser(&watched{a, io.NewSectionReader(body, 0, body.Size())})
		} else {
			req.Body = http.NoBody
		}
	}
	if h.opt.Sign != nil {
		if err := h.opt.Sign(req); errors.Is(err, robocache.ErrTemporary) {
			return nil, &transient{err: err}
		} else if err != nil {
			return nil, err
		}
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, a.network(err)
	}
	a.alive()
	if resp.StatusCode < 300 && req.Header.Get("Authorization") != "" {
		h.accepted.Store(true)
	}
	a.body = resp.Body
	return resp, nil
}

// watched is a request's body: what goes out counts as a sign of life.
type watched struct {
	a *attempt
	r io.Reader
}

func (w *watched) Read(p []byte) (int, error) {
	w.a.alive()
	return w.r.Read(p)
}

// discard reads a short rest of an answer, so that the connection can serve the next try.
func (a *attempt) discard() { io.CopyN(io.Discard, a.body, 4<<10) }

// check turns an answer into a reply or into an error of its class; *transient ones may be tried
// again.
func (h *HTTP) check(resp *http.Response, name string, off int64, want *pin) (*reply, error) {
	got := pin{
		size:     -1,
		etag:     h.versionOf(resp),
		modified: resp.Header.Get("Last-Modified"),
		settled:  settled(resp.Header),
	}
	r := &reply{body: resp.Body, length: resp.ContentLength}
	wrong := func(class error, msg string) error {
		return h.answered(resp, robocache.NewError(class, "", nil, "%s", msg))
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		start, last, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok || total < 0 {
			return nil, wrong(
				robocache.ErrUnsupported,
				"a partial answer without a usable Content-Range",
			)
		}
		got.size, r.ranged = total, true
		// A shorter body than promised is read and then asked for further, like any that breaks
		// off.
		if start != off || r.length > last-start+1 {
			return nil, wrong(
				robocache.ErrMalformed,
				"the server sent another range than asked for: "+show(
					resp.Header.Get("Content-Range"),
				),
			)
		}
	case http.StatusOK:
		got.size = resp.ContentLength
		if got.size < 0 && len(resp.TransferEncoding) == 0 && resp.ProtoMajor < 2 {
			return nil, wrong(
				robocache.ErrUnsupported,
				"an answer without a length: a cut one could not be told from a whole one",
			)
		}
	case http.StatusRequestedRangeNotSatisfiable:
		_, _, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if ok && total == 0 && off == 0 && (want == nil || want.size == 0) {
			return &reply{body: http.NoBody, pin: got.sized(0)}, nil
		}
		if want != nil {
			return nil, changed(
				h.uri,
				name,
				show(want.version()),
				"a file that ends before the range (status 416)",
			)
		}
		return nil, wrong(robocache.ErrMalformed, "the server refuses the first byte")
	case http.StatusPreconditionFailed:
		if want != nil {
			return nil, changed(h.uri, name, show(want.version()), "another one (status 412)")
		}
		return nil, wrong(robocache.ErrMalformed, "precondition failed, where none was set")
	default:
		return nil, h.refused(resp)
	}
	if enc := resp.Header.Get(
		"Content-Encoding",
	); enc != "" &&
		!strings.EqualFold(enc, "identity") {
		return nil, wrong(
			robocache.ErrUnsupported,
			"the server compresses ("+show(enc)+") although asked not to",
		)
	}
	if want != nil && !want.same(got) {
		return nil, changed(h.uri, name, show(want.version()), "version "+show(got.version()))
	}
	r.pin = got
	return r, nil
}

// versionOf is the version that an answer names, or the answer before it that led to another host.
func (h *HTTP) versionOf(resp *http.Response) string {
	for r := resp; r != nil && h.opt.VersionHeader != "ETag"; r = r.Request.Response {
		if v := r.Header.Get(h.opt.VersionHeader); v != "" {
			return v
		}
	}
	return resp.Header.Get("ETag")
}

var rangeForm = regexp.MustCompile(`^bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)$`)

// contentRange parses "bytes a-b/total" and "bytes */total"; total is -1 for "*".
func contentRange(s string) (start, last, total int64, ok bool) {
	m := rangeForm.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, 0, 0, false
	}
	number := func(s string, none int64) int64 {
		if s == "" || s == "*" {
			return none
		}
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return math.MaxInt64 // beyond any file
		}
		return v
	}
	start, last, total = number(m[1], 0), number(m[2], -1), number(m[3], -1)
	return start, last, total, m[1] == "" ||
		last >= start && last < math.MaxInt64 && (total < 0 || last < total)
}

// fill reads the reply into p. A body that ends early is transient: the caller counts n and asks
// for the rest.
func (a *attempt) fill(r *reply, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k, err := r.body.Read(p[n:])
		n += k
		if k > 0 {
			a.alive()
			a.progress += int64(k)
		}
		if n == len(p) {
			return n, nil // with or without io.EOF
		}
		if errors.Is(err, io.EOF) {
			return n, &transient{err: io.ErrUnexpectedEOF}
		}
		if err != nil {
			return n, a.network(err)
		}
	}
	return n, nil
}

// errTooLong says that a body without ranges passed its limit.
var errTooLong = errors.New("over the limit")

// spool reads a whole object, from its first byte, of at most limit bytes; of an unknown length it
// stops one byte after them.
func (a *attempt) spool(r *reply, name string, limit int64) (data []byte, err error) {
	size := r.pin.size
	if size < 0 {
		buf := make([]byte, 32<<10)
		for int64(len(data)) <= limit && err == nil {
			var k int
			k, err = r.body.Read(buf[:min(int64(len(buf)), limit+1-int64(len(data)))])
			if data = append(data, buf[:k]...); k > 0 {
				a.alive()
				a.extend(int64(k))
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, a.network(err)
		}
		size = int64(len(data))
	}
	if size > limit {
		e := tooLarge(a.h.uri, name, size, limit)
		e.Err = errTooLong
		return nil, e
	}
	if r.pin.size >= 0 {
		a.extend(size)
		data = make([]byte, size)
		_, err = a.fill(r, data)
		return data, err
	}
	return data, nil
}

// retryAfter is how long the server asks to be left alone.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour // more is the same, and sums of it could wrap
	s := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(t.Sub(now), 0), most)
	}
	return 0
}
