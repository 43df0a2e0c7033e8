package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

const (
	onePut   = 64 << 20 // a larger object goes up in parts
	partSize = 16 << 20 // of which a server takes at most maxParts
	maxParts = 10_000
	atOnce   = 4 // parts under way
)

// Create begins an object that replaces name at Commit.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	return s.create(ctx, name, nil)
}

// CreateNew is Create, but Commit fails with store.ErrExists where the name is taken by then (If-None-Match).
func (s *Store) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return s.create(ctx, name, http.Header{"If-None-Match": {"*"}})
}

func (s *Store) create(ctx context.Context, name string, condition http.Header) (_ store.Writer, err error) {
	defer guard.Into(&err)
	name, u := s.key(ctx, "create", name)
	return store.Spool(ctx, s.URI(), name, func(ctx context.Context, body *io.SectionReader) (err error) {
		defer guard.Into(&err)
		up := &upload{s, ctx, name, u, body}
		if body.Size() <= onePut {
			header := hashed(body)
			up.finish(up.do(http.MethodPut, nil, join(header, condition), body, http.StatusPreconditionFailed))
		} else {
			up.parts(condition)
		}
		return nil
	})
}

// key is the URL of a clean name's object.
func (s *Store) key(ctx context.Context, op, name string) (string, *url.URL) {
	name = guard.Must(s.Clean(ctx, op, name))
	u := *s.bucket
	u.Path = strings.TrimRight(u.Path, "/") + "/" + s.prefix + name
	return name, &u
}

// hashed is the header that lets the server check what it gets.
func hashed(body *io.SectionReader) http.Header {
	h := sha256.New()
	guard.Must(io.Copy(h, io.NewSectionReader(body, 0, body.Size())))
	return http.Header{"X-Amz-Content-Sha256": {hex.EncodeToString(h.Sum(nil))}}
}

func join(a, b http.Header) http.Header {
	for k, v := range b {
		a[k] = v
	}
	return a
}

// upload is one object on its way.
type upload struct {
	s    *Store
	ctx  context.Context
	name string
	u    *url.URL
	body *io.SectionReader
}

func (up *upload) do(method string, query url.Values, header http.Header, body *io.SectionReader, expect ...int) *store.Answer {
	u := *up.u
	u.RawQuery = query.Encode()
	return guard.Must(up.s.Do(up.ctx, "commit", up.name, store.Request{Method: method, URL: &u, Header: header, Body: body, Expect: expect}))
}

// finish looks at the answer to what gives the object its name. Where an earlier try may have done that, the object that is there decides.
func (up *upload) finish(a *store.Answer) {
	if a.Status < 300 || a.Tries > 1 && store.Holds(up.ctx, up.s, up.name, up.body) {
		return
	}
	err := error(fs.ErrExist)
	if a.Status != http.StatusPreconditionFailed {
		err = &robocache.Error{Class: robocache.ErrTemporary, Op: "commit", Msg: "the server lost the upload", Hint: "write it again"}
	}
	guard.Fail(up.s.Fail("commit", up.name, err))
}

// parts uploads a large object in parts; one that fails leaves none.
func (up *upload) parts(condition http.Header) {
	var begun struct{ UploadId string }
	if err := xml.Unmarshal(up.do(http.MethodPost, url.Values{"uploads": {""}}, nil, nil).Body, &begun); err != nil || begun.UploadId == "" {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "commit", Msg: "the server begins no upload in parts"})
	}
	id := url.Values{"uploadId": {begun.UploadId}}
	done := false
	defer func() {
		if done {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(up.ctx), 30*time.Second)
		defer cancel()
		u := *up.u
		u.RawQuery = id.Encode()
		_, _ = up.s.Do(ctx, "abort", up.name, store.Request{Method: http.MethodDelete, URL: &u, Expect: []int{http.StatusNotFound}})
	}()
	size := max(partSize, (up.body.Size()+maxParts-1)/maxParts)
	type part struct {
		PartNumber int
		ETag       string
	}
	all := struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []part
	}{Part: make([]part, (up.body.Size()+size-1)/size)}
	g, ctx := errgroup.WithContext(up.ctx)
	g.SetLimit(atOnce)
	for i := range all.Part {
		g.Go(func() (err error) {
			defer guard.Into(&err)
			if ctx.Err() != nil { // a part that has begun goes on: one that comes after the end of an upload may bring it back
				return ctx.Err()
			}
			piece := io.NewSectionReader(up.body, int64(i)*size, min(size, up.body.Size()-int64(i)*size))
			a := up.do(http.MethodPut, url.Values{"uploadId": id["uploadId"], "partNumber": {strconv.Itoa(i + 1)}}, hashed(piece), piece)
			all.Part[i] = part{i + 1, a.Header.Get("ETag")}
			return nil
		})
	}
	guard.Check(g.Wait())
	text := guard.Must(xml.Marshal(all))
	body := io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))
	a := up.do(http.MethodPost, id, join(hashed(body), condition), body, http.StatusPreconditionFailed, http.StatusNotFound)
	var refused struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(a.Body, &refused) == nil && a.Status == http.StatusOK { // an error may come after the status
		guard.Fail(&robocache.Error{Class: robocache.ErrTemporary, Op: "commit", Want: "the upload's end", Got: refused.Code})
	}
	up.finish(a)
	done = true
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) (err error) {
	defer guard.Into(&err)
	name, u := s.key(ctx, "remove", name)
	guard.Must(s.Stat(ctx, name)) // to the server one that is not there is removed
	guard.Must(s.Do(ctx, "remove", name, store.Request{Method: http.MethodDelete, URL: u, Expect: []int{http.StatusNotFound}}))
	return nil
}
