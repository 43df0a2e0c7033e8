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

// pin is the size and version of an object. Every later response must agree with it.
type pin struct {
	size     int64 // -1 if unknown
	etag     string
	modified string // Last-Modified
	// isSettled reports whether the object was last modified at least 2 s before the response. The
	// header Last-Modified counts whole seconds, so two changes within a second have the same value.
	isSettled bool
}

func (p pin) withSize(size int64) pin {
	p.size = size
	return p
}

// isModifiedLongAgo returns pin.isSettled for a response.
func isModifiedLongAgo(h http.Header) bool {
	at, err := http.ParseTime(h.Get("Last-Modified"))
	now, nowErr := http.ParseTime(h.Get("Date"))
	return err == nil && nowErr == nil && now.Sub(at) >= 2*time.Second
}

// versionText returns the ETag, or size and Last-Modified.
func (p pin) versionText() string {
	if p.etag != "" {
		return p.etag
	}
	if p.modified != "" {
		return strconv.FormatInt(p.size, 10) + "-" + p.modified
	}
	return strconv.FormatInt(p.size, 10)
}

// agreesWith compares the fields that both pins have. Weak ETags are compared by their text,
// because bytes are requested without compression.
func (p pin) agreesWith(q pin) bool {
	if p.size >= 0 && q.size >= 0 && p.size != q.size {
		return false
	}
	if p.etag != "" && q.etag != "" {
		return strings.TrimPrefix(p.etag, "W/") == strings.TrimPrefix(q.etag, "W/")
	}
	return p.modified == "" || q.modified == "" || p.modified == q.modified
}

// reply is a response with a body that the caller reads.
type reply struct {
	body io.Reader // closed when the attempt ends
	pin  pin
	// the body is the requested range or its beginning; false: the whole object
	ranged bool
	length int64 // of the body; -1 if unknown
}

// getRange requests [off, end) of name and checks the status, range and version of the response.
func (a *attempt) getRange(name string, off, end int64, want *pin) (*reply, error) {
	h := a.h
	header := http.Header{
		"Range": {"bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(end-1, 10)},
	}
	hasStrongETag := want != nil && want.etag != "" && !strings.HasPrefix(want.etag, "W/")
	if hasStrongETag && h.options.MatchHeader != "-" {
		header.Set(h.options.MatchHeader, want.etag)
	}
	resp, err := a.sendRequest(http.MethodGet, h.fileURL(name), header, nil)
	if err != nil {
		return nil, err
	}
	maybeEmpty := resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && off == 0
	if maybeEmpty && want == nil && resp.Header.Get(h.options.VersionHeader) == "" {
		// An empty object has no first byte, so every range fails. Request the object without a
		// range, which also returns its version.
		a.discardBody()
		resp, err = a.sendRequest(http.MethodGet, h.fileURL(name), nil, nil)
		if err != nil {
			return nil, err
		}
	}
	r, err := h.checkReply(resp, name, off, want)
	if err != nil {
		a.discardBody()
		return nil, err
	}
	return r, nil
}

// sendRequest sends a request with the store's headers, credentials and signature.
func (a *attempt) sendRequest(
	method string,
	u *url.URL,
	header http.Header,
	body *io.SectionReader,
) (*http.Response, error) {
	h := a.h
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}}
	req = req.WithContext(a.ctx)
	for _, from := range []http.Header{h.options.Header, header} {
		for k, v := range from {
			req.Header[http.CanonicalHeaderKey(k)] = v
		}
	}
	if h.auth != "" && req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", h.auth)
	}
	req.Header.Set("Accept-Encoding", "identity") // offsets refer to uncompressed bytes
	req.Header.Set("User-Agent", "robocache")
	if body != nil {
		req.ContentLength = body.Size()
		if req.ContentLength > 0 {
			req.Body = io.NopCloser(&watchedBody{a, io.NewSectionReader(body, 0, body.Size())})
		} else {
			req.Body = http.NoBody
		}
	}
	if h.options.Sign != nil {
		if err := h.options.Sign(req); errors.Is(err, robocache.ErrTemporary) {
			return nil, &transient{err: err}
		} else if err != nil {
			return nil, err
		}
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, a.networkError(err)
	}
	a.resetWatchdog()
	if resp.StatusCode < 300 && req.Header.Get("Authorization") != "" {
		h.accepted.Store(true)
	}
	a.body = resp.Body
	return resp, nil
}

// watchedBody is the body of a request. Each read of it resets the watchdog.
type watchedBody struct {
	a *attempt
	r io.Reader
}

func (w *watchedBody) Read(p []byte) (int, error) {
	w.a.resetWatchdog()
	return w.r.Read(p)
}

// discardBody reads a short rest of a response, so that the connection can be reused.
func (a *attempt) discardBody() { io.CopyN(io.Discard, a.body, 4<<10) }

// checkReply checks the status, the range and the version of a response, and returns it as a reply.
// A *transient error may be retried. want is nil if no version is pinned yet.
func (h *HTTP) checkReply(resp *http.Response, name string, off int64, want *pin) (*reply, error) {
	got := pin{
		size:      -1,
		etag:      h.responseVersion(resp),
		modified:  resp.Header.Get("Last-Modified"),
		isSettled: isModifiedLongAgo(resp.Header),
	}
	r := &reply{body: resp.Body, length: resp.ContentLength}
	wrong := func(class error, msg string) error {
		return h.withResponse(resp, robocache.NewError(class, "", nil, "%s", msg))
	}
	changed := func(found string) error {
		return changedError(h.uri, name, quoteName(want.versionText()), found)
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		start, last, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
		if !ok || total < 0 {
			return nil, wrong(
				robocache.ErrUnsupported,
				"a partial answer without a usable Content-Range",
			)
		}
		got.size, r.ranged = total, true
		// If the body is shorter than the range, the rest is requested later, as after a reset.
		if start != off || r.length > last-start+1 {
			return nil, wrong(
				robocache.ErrMalformed,
				"the server sent another range than requested: "+
					quoteName(resp.Header.Get("Content-Range")),
			)
		}
	case http.StatusOK:
		got.size = resp.ContentLength
		if got.size < 0 && len(resp.TransferEncoding) == 0 && resp.ProtoMajor < 2 {
			return nil, wrong(
				robocache.ErrUnsupported,
				"the answer has no length, so a truncated one would look complete",
			)
		}
	case http.StatusRequestedRangeNotSatisfiable:
		_, _, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
		isEmpty := ok && total == 0 && (want == nil || want.size == 0)
		if isEmpty && off == 0 {
			return &reply{body: http.NoBody, pin: got.withSize(0)}, nil
		}
		if want != nil {
			return nil, changed("a file that ends before the range (status 416)")
		}
		return nil, wrong(robocache.ErrMalformed, "the server refuses the first byte")
	case http.StatusPreconditionFailed:
		if want != nil {
			return nil, changed("another one (status 412)")
		}
		return nil, wrong(
			robocache.ErrMalformed,
			"the server reports a failed precondition, but none was sent",
		)
	default:
		return nil, h.statusError(resp)
	}
	enc := resp.Header.Get("Content-Encoding")
	if enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, wrong(
			robocache.ErrUnsupported,
			"the server compresses ("+quoteName(enc)+") although asked not to",
		)
	}
	if want != nil && !want.agreesWith(got) {
		return nil, changed("version " + quoteName(got.versionText()))
	}
	r.pin = got
	return r, nil
}

// responseVersion returns the version of the object: the VersionHeader of the response, or of a
// redirect that led to it. If no response has this header, it is the ETag.
func (h *HTTP) responseVersion(resp *http.Response) string {
	for r := resp; r != nil && h.options.VersionHeader != "ETag"; r = r.Request.Response {
		if v := r.Header.Get(h.options.VersionHeader); v != "" {
			return v
		}
	}
	return resp.Header.Get("ETag")
}

var rangeForm = regexp.MustCompile(`^bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)$`)

// parseContentRange parses "bytes a-b/total" and "bytes */total". total is -1 for "*".
func parseContentRange(s string) (start, last, total int64, ok bool) {
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
	start = number(m[1], 0)
	last = number(m[2], -1)
	total = number(m[3], -1)
	isValidRange := last >= start && last < math.MaxInt64 && (total < 0 || last < total)
	return start, last, total, m[1] == "" || isValidRange
}

// fillBuffer reads the reply into p and returns the number of bytes. If the body ends early, the
// error is transient, and the caller requests the rest.
func (a *attempt) fillBuffer(r *reply, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k, err := r.body.Read(p[n:])
		n += k
		if k > 0 {
			a.resetWatchdog()
			a.progress += int64(k)
		}
		if n == len(p) {
			return n, nil // err may be nil or io.EOF
		}
		if errors.Is(err, io.EOF) {
			return n, &transient{err: io.ErrUnexpectedEOF}
		}
		if err != nil {
			return n, a.networkError(err)
		}
	}
	return n, nil
}

// errTooLong means that a body without ranges exceeded its limit.
var errTooLong = errors.New("over the limit")

// readBody reads a whole object of at most limit bytes. If its length is unknown, readBody stops
// one byte after the limit.
func (a *attempt) readBody(r *reply, name string, limit int64) (data []byte, err error) {
	size := r.pin.size
	if size < 0 {
		buf := make([]byte, 32<<10)
		for int64(len(data)) <= limit && err == nil {
			var k int
			k, err = r.body.Read(buf[:min(int64(len(buf)), limit+1-int64(len(data)))])
			data = append(data, buf[:k]...)
			if k > 0 {
				a.resetWatchdog()
				a.extendDeadline(int64(k))
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, a.networkError(err)
		}
		size = int64(len(data))
	}
	if size > limit {
		e := tooLarge(a.h.uri, name, size, limit)
		e.Err = errTooLong
		return nil, e
	}
	if r.pin.size >= 0 {
		a.extendDeadline(size)
		data = make([]byte, size)
		_, err = a.fillBuffer(r, data)
		return data, err
	}
	return data, nil
}

// parseRetryAfter returns the delay that the server requests.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour // avoids overflow of sums
	s := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(t.Sub(now), 0), most)
	}
	return 0
}
