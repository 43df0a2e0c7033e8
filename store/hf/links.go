package hf

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
)

// links remembers where the Hub sent us for a file: to ask it before each range would double the
// requests, and it counts them (429).
type links struct {
	hub   string // the repository's URL
	below http.RoundTripper
	known sync.Map // URL → link
}

type link struct {
	header http.Header
	until  time.Time
}

// trusted is how long a link is followed unasked: they are signed for an hour or so.
const trusted = 5 * time.Minute

// remembered marks an answer that the Hub gave before.
const remembered = "X-Robocache-Remembered"

func (l *links) wrap(below http.RoundTripper) http.RoundTripper {
	l.below = below
	return l
}

// RoundTrip answers in the Hub's place what it has answered before.
func (l *links) RoundTrip(r *http.Request) (*http.Response, error) {
	at := r.URL.String()
	if !strings.HasPrefix(at, l.hub+"/resolve/") {
		return l.below.RoundTrip(r)
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
	resp, err := l.below.RoundTrip(r)
	if err == nil &&
		(resp.StatusCode == http.StatusFound || resp.StatusCode == http.StatusTemporaryRedirect) {
		if to, err := url.Parse(
			resp.Header.Get("Location"),
		); err == nil && to.IsAbs() &&
			to.Host != r.URL.Host {
			h := resp.Header.Clone()
			h.Set(remembered, "1")
			l.known.Store(at, link{h, time.Now().Add(trusted)})
		}
	}
	return resp, err
}

// CloseIdleConnections is of http.Client.
func (l *links) CloseIdleConnections() {
	if c, ok := l.below.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// explain says what the Hub says. A link that has expired is asked for again.
func (l *links) explain(r *http.Response, _ []byte, e *robocache.Error) (again bool) {
	if code := r.Header.Get("X-Error-Code"); code != "" && len(code) < 64 {
		e.Want, e.Got = "the file", code
	}
	from := r.Request.Response
	switch {
	case from != nil && r.StatusCode >= 400 && r.StatusCode < 500:
		l.known.Delete(from.Request.URL.String())
		again = from.Header.Get(remembered) != ""
	case r.StatusCode == http.StatusUnauthorized: // also where there is no such dataset
		e.Hint = "there is no such dataset, or it is private or gated: set HF_TOKEN"
	case r.StatusCode == http.StatusForbidden:
		e.Hint = "the dataset is gated, or the token may not read it"
	}
	if again {
		e.Class = robocache.ErrTemporary
	}
	return again
}
