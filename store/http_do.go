package store

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Request is a request of a protocol over http that is no read of a file.
type Request struct {
	Method string
	URL    *url.URL // on the store's own host
	Header http.Header
	Body   *io.SectionReader // sent again from its first byte at each try
	// bytes that the server moves before it answers: it may be silent for as long as they take
	Copies int64
	Expect []int // statuses that are an answer, beside 200 to 206
	// false: the body was cut on the way, and is asked for again; nil: any is whole
	Whole func(body []byte) bool
}

// Answer is what a server says to a Request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Tries  int // more than one: an earlier one failed, and may have done its work before it did
}

// maxAnswer bounds an answer that is held in memory: a page of a list has a thousand names.
const maxAnswer = 16 << 20

// Do sends a request, with the retries, waits and errors of reads; op and name say what it is for.
func (h *HTTP) Do(ctx context.Context, op, name string, r Request) (out *Answer, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	size := r.Copies
	if r.Body != nil {
		size = r.Body.Size()
	}
	tries := 0
	if err := h.do(ctx, op, name, size, func(a *attempt) error {
		tries++
		a.watch.Reset(
			h.opt.Stall + time.Duration(
				float64(r.Copies)/float64(64*h.opt.MinRate)*float64(time.Second),
			),
		)
		resp, err := a.send(r.Method, r.URL, r.Header, r.Body)
		if err != nil {
			return err
		}
		if (resp.StatusCode < 200 || resp.StatusCode > 206) &&
			!slices.Contains(r.Expect, resp.StatusCode) {
			defer a.discard()
			return h.refused(resp)
		}
		body, err := a.spool(&reply{body: resp.Body, pin: pin{size: -1}}, name, maxAnswer)
		if err == nil && r.Whole != nil && !r.Whole(body) {
			err = &transient{
				err: robocache.Temporary("", nil, "the answer is cut, or is none of this protocol").
					WithHint("check the endpoint"),
			}
		}
		out = &Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Tries: tries}
		return err
	}); err != nil {
		return out, err
	}
	return out, nil
}

// Fail gives an error of a back end its class and place.
func (h *HTTP) Fail(op, name string, err error) error { return fail(op, h.uri, name, err) }

// Clean is CleanName for an operation on this store.
func (h *HTTP) Clean(ctx context.Context, op, name string) (_ string, err error) {
	return clean(ctx, h.uri, op, name)
}
