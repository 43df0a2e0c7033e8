package store

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// network classifies an error of net/http. Its text may quote URLs (of redirects too), so only
// causes known to hold none are kept whole.
func (a *attempt) network(err error) error {
	if cause := context.Cause(a.ctx); cause != nil {
		// a stall, the deadline, or the caller's own end: do looks at the contexts first
		return &transient{err: cause}
	}
	var own *robocache.Error
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = uerr.Err
	}
	if errors.As(err, &own) { // of redirect or of the dialer
		return own
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsNotFound {
			return robocache.NotFound("", nil, "no such host: %s", show(dns.Name)).
				WithHint("check the URL and the network")
		}
		return &transient{err: errors.New("the host's address could not be looked up")}
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return robocache.Misuse("", nil, "the server's certificate is not trusted").
			WithCause(cert.Err).WithHint("install the certificate authority (SSL_CERT_FILE)")
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return robocache.Misuse("", nil, "the server speaks http, not https").
			WithHint("use an http:// URL")
	}
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return &transient{err: errno}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &transient{err: io.ErrUnexpectedEOF}
	}
	return &transient{err: errors.New(scrub(err.Error()))}
}

var secret = regexp.MustCompile(`[?#][^\s"'<>]*|//[^/\s"']*@`)

// scrub takes out of a message what could be a query, a fragment, or a user and password.
func scrub(s string) string { return show(secret.ReplaceAllString(s, "…")) }

// refused is the error of a status that has no bytes for us.
func (h *HTTP) refused(resp *http.Response) error {
	e := &robocache.Error{}
	status := resp.StatusCode
	again := false
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		e.Class, e.Err = robocache.ErrNotFound, fs.ErrNotExist
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Class, e.Err = robocache.ErrMisuse, fs.ErrPermission
		e.Msg, e.Hint = "the server denies access", "the token or signature is missing, wrong or expired"
		if status == http.StatusUnauthorized {
			h.Expired(e)
		}
	case status == 408,
		status == 425,
		status == 429,
		status == 500,
		status == 502,
		status == 503,
		status == 504,
		status > 505:
		e.Class, e.Msg, again = robocache.ErrTemporary, "the server answers "+http.StatusText(
			status,
		), true
	case status >= 500:
		e.Class, e.Msg = robocache.ErrUnsupported, "the server answers "+http.StatusText(status)
	case status >= 400:
		e.Class, e.Msg = robocache.ErrMisuse, "the server refuses the request: "+http.StatusText(
			status,
		)
	default:
		e.Class, e.Msg = robocache.ErrMalformed, "an answer that means nothing here: "+http.StatusText(
			status,
		)
	}
	if h.opt.Explain != nil {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		again = h.opt.Explain(resp, body, e) || again
	}
	if again {
		return &transient{err: h.answered(resp, e), after: retryAfter(resp.Header, time.Now())}
	}
	return h.answered(resp, e)
}

// Expired makes a refusal of credentials, where the server accepted them before, one that new ones
// pass: another attempt may succeed.
func (h *HTTP) Expired(e *robocache.Error) {
	if h.accepted.Load() {
		e.Class, e.Msg, e.Hint = robocache.ErrTemporary, "the server no longer accepts the credentials", "they have expired: renew the credentials, and run it again"
	}
}

// answered adds what the server's support asks for first.
func (h *HTTP) answered(resp *http.Response, e *robocache.Error) error {
	e.Where = robocache.Where{"status": resp.StatusCode}
	for _, k := range []string{"X-Amz-Request-Id", "X-Request-Id", "X-Ms-Request-Id"} {
		if v := resp.Header.Get(k); v != "" {
			e.Where["request_id"] = show(v)
			break
		}
	}
	return e
}
