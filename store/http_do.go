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

// Request is a request of a protocol over HTTP other than a read of a file.
type Request struct {
	Method string
	URL    *url.URL // on the store's own host
	Header http.Header
	Body   *io.SectionReader // each attempt sends it from its first byte
	// Copies is the number of bytes that the server copies itself. The stall limit grows with it.
	Copies int64
	Expect []int // accepted statuses in addition to 200 to 206
	// Whole reports whether the body is complete. If it returns false, the request is repeated. nil
	// accepts any body.
	Whole func(body []byte) bool
}

// Answer is the response to a Request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Tries  int // attempts; if more than one, an earlier one may have taken effect before it failed
}

// maxAnswer limits a response that is held in memory. A page of a listing has a thousand names.
const maxAnswer = 16 << 20

// Do sends a request with the retries, waits and errors of reads. op and name describe it in
// errors.
func (h *HTTP) Do(ctx context.Context, op, name string, r Request) (out *Answer, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	size := r.Copies
	if r.Body != nil {
		size = r.Body.Size()
	}
	tries := 0
	if err := h.runOperation(ctx, op, name, size, func(a *attempt) error {
		tries++
		// A copy on the server should be at least 64 times as fast as a transfer.
		copySeconds := float64(r.Copies) / float64(64*h.options.MinRate)
		a.watch.Reset(h.options.Stall + time.Duration(copySeconds*float64(time.Second)))
		resp, err := a.sendRequest(r.Method, r.URL, r.Header, r.Body)
		if err != nil {
			return err
		}
		isSuccess := resp.StatusCode >= 200 && resp.StatusCode <= 206
		if !isSuccess && !slices.Contains(r.Expect, resp.StatusCode) {
			defer a.discardBody()
			return h.statusError(resp)
		}
		body, err := a.readBody(&reply{body: resp.Body, pin: pin{size: -1}}, name, maxAnswer)
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

// Fail adds the class, the operation and the file to an error of a back end.
func (h *HTTP) Fail(op, name string, err error) error { return storeError(op, h.uri, name, err) }

// Clean is CleanName for an operation on this store.
func (h *HTTP) Clean(ctx context.Context, op, name string) (_ string, err error) {
	return cleanFor(ctx, h.uri, op, name)
}
