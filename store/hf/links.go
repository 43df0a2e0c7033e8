package hf

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
)

// links remembers the redirects of the Hub. Following them again for each range would double the
// requests, which the Hub limits (429).
type links struct {
	hub       string // URL of the repository
	transport http.RoundTripper
	known     sync.Map // URL → link
}

// link is the response of a redirect, which is reused until it is too old.
type link struct {
	header http.Header
	until  time.Time
}

// linkLifetime is the time for which a redirect is reused. Redirects are signed for about an hour.
const linkLifetime = 5 * time.Minute

// rememberedHeader marks a redirect that was reused.
const rememberedHeader = "X-Robocache-Remembered"

// wrapTransport returns l as a transport that sends its requests by next.
func (l *links) wrapTransport(next http.RoundTripper) http.RoundTripper {
	l.transport = next
	return l
}

// RoundTrip returns a remembered redirect, or sends the request.
func (l *links) RoundTrip(r *http.Request) (*http.Response, error) {
	at := r.URL.String()
	if !strings.HasPrefix(at, l.hub+"/resolve/") {
		return l.transport.RoundTrip(r)
	}
	if v, ok := l.known.Load(at); ok && time.Now().Before(v.(link).until) {
		return &http.Response{
			StatusCode: http.StatusFound,
			Status:     "302 Found",
			Proto:      "HTTP/1.1",
			ProtoMajor: 1,
			ProtoMinor: 1,
			Header:     v.(link).header,
			Body:       http.NoBody,
			Request:    r,
		}, nil
	}
	resp, err := l.transport.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	redirects := []int{http.StatusFound, http.StatusTemporaryRedirect}
	if slices.Contains(redirects, resp.StatusCode) {
		to, err := url.Parse(resp.Header.Get("Location"))
		if err == nil && to.IsAbs() && to.Host != r.URL.Host {
			h := resp.Header.Clone()
			h.Set(rememberedHeader, "1")
			l.known.Store(at, link{h, time.Now().Add(linkLifetime)})
		}
	}
	return resp, nil
}

// CloseIdleConnections implements the method that http.Client calls.
func (l *links) CloseIdleConnections() {
	if c, ok := l.transport.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// explainError adds the Hub's error code and a hint to e. If the request followed a remembered
// redirect, the redirect may have expired. explainError then forgets it and reports that the request
// should be retried.
func (l *links) explainError(r *http.Response, _ []byte, e *robocache.Error) (again bool) {
	if code := r.Header.Get("X-Error-Code"); code != "" && len(code) < 64 {
		e.Want, e.Got = "the file", code
	}
	redirect := r.Request.Response // that led to this response; nil: none
	switch {
	case redirect != nil && r.StatusCode >= 400 && r.StatusCode < 500:
		l.known.Delete(redirect.Request.URL.String())
		again = redirect.Header.Get(rememberedHeader) != ""
	case r.StatusCode == http.StatusUnauthorized: // also if the dataset does not exist
		e.Hint = "there is no such dataset, or it is private or gated: set HF_TOKEN"
	case r.StatusCode == http.StatusForbidden:
		e.Hint = "the dataset is gated, or the token may not read it"
	}
	if again {
		e.Class = robocache.ErrTemporary
	}
	return again
}
