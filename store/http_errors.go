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
	"slices"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// networkError classifies an error of net/http. The error's text may quote URLs, also of redirects.
// Only causes that cannot contain secrets are kept unchanged.
func (a *attempt) networkError(err error) error {
	if cause := context.Cause(a.ctx); cause != nil {
		// runOperation retries a stall. It reports the deadline and the caller's cancellation
		// itself.
		return &transient{err: cause}
	}
	var own *robocache.Error
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = uerr.Err
	}
	if errors.As(err, &own) { // from checkRedirect or the dialer
		return own
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsNotFound {
			return robocache.NotFound("", nil, "no such host: %s", quoteName(dns.Name)).
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
	return &transient{err: errors.New(scrubSecrets(err.Error()))}
}

var secret = regexp.MustCompile(`[?#][^\s"'<>]*|//[^/\s"']*@`)

// scrubSecrets removes possible queries, fragments, users and passwords from a message.
func scrubSecrets(s string) string { return quoteName(secret.ReplaceAllString(s, "…")) }

// retryStatuses are the statuses after which the same request may succeed later.
var retryStatuses = []int{
	http.StatusRequestTimeout,
	http.StatusTooEarly,
	http.StatusTooManyRequests,
	http.StatusInternalServerError,
	http.StatusBadGateway,
	http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}

// statusError returns the error of a response with an unexpected status.
func (h *HTTP) statusError(resp *http.Response) error {
	e := &robocache.Error{}
	status := resp.StatusCode
	again := false
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		e.Class = robocache.ErrNotFound
		e.Err = fs.ErrNotExist
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Class = robocache.ErrMisuse
		e.Err = fs.ErrPermission
		e.Msg = "the server denies access"
		e.Hint = "the token or signature is missing, wrong or expired"
		if status == http.StatusUnauthorized {
			h.Expired(e)
		}
	// Statuses above 505 are those of proxies and content networks, such as 520 to 527.
	case slices.Contains(retryStatuses, status) || status > http.StatusHTTPVersionNotSupported:
		e.Class = robocache.ErrTemporary
		e.Msg = "the server answers " + http.StatusText(status)
		again = true
	case status >= 500:
		e.Class = robocache.ErrUnsupported
		e.Msg = "the server answers " + http.StatusText(status)
	case status >= 400:
		e.Class = robocache.ErrMisuse
		e.Msg = "the server refuses the request: " + http.StatusText(status)
	default:
		e.Class = robocache.ErrMalformed
		e.Msg = "an unexpected answer: " + http.StatusText(status)
	}
	if h.options.Explain != nil {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		again = h.options.Explain(resp, body, e) || again
	}
	if again {
		return &transient{
			err:   h.withResponse(resp, e),
			after: parseRetryAfter(resp.Header, time.Now()),
		}
	}
	return h.withResponse(resp, e)
}

// Expired turns e into an error of expired credentials if the server accepted the credentials
// earlier. Its class becomes temporary, because the operation may succeed with new credentials.
func (h *HTTP) Expired(e *robocache.Error) {
	if h.accepted.Load() {
		e.Class = robocache.ErrTemporary
		e.Msg = "the server no longer accepts the credentials"
		e.Hint = "Renew the credentials, which have expired, and run it again."
	}
}

// withResponse adds the status and the request id of a response to an error.
func (h *HTTP) withResponse(resp *http.Response, e *robocache.Error) error {
	e.Where = robocache.Where{"status": resp.StatusCode}
	for _, k := range []string{"X-Amz-Request-Id", "X-Request-Id", "X-Ms-Request-Id"} {
		if v := resp.Header.Get(k); v != "" {
			e.Where["request_id"] = quoteName(v)
			break
		}
	}
	return e
}
