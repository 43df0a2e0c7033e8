package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/s3utils"
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

// oneCopy is the size of the parts in which a larger object is copied; tests lower it.
var oneCopy int64 = 1 << 30

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
		up := &upload{s: s, ctx: ctx, name: name, u: u, body: body}
		if body.Size() <= onePut {
			header := hashed(body)
			up.finish(up.do(http.MethodPut, nil, join(header, condition), body, http.StatusPreconditionFailed))
		} else {
			up.parts(body.Size(), partSize, condition, func(id url.Values, off, n int64) string {
				piece := io.NewSectionReader(body, off, n)
				return up.do(http.MethodPut, id, hashed(piece), piece).Header.Get("ETag")
			})
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

	copies int64 // store.Request.Copies
}

func (up *upload) do(method string, query url.Values, header http.Header, body *io.SectionReader, expect ...int) *store.Answer {
	u := *up.u
	u.RawQuery = query.Encode()
	return guard.Must(up.s.Do(up.ctx, "commit", up.name, store.Request{Method: method, URL: &u, Header: header, Body: body, Copies: up.copies, Expect: expect}))
}

// finish looks at the answer to what gives the object its name. Where an earlier try may have done that, the object that is there decides.
func (up *upload) finish(a *store.Answer) {
	if a.Status < 300 || a.Tries > 1 && up.body != nil && store.Holds(up.ctx, up.s, up.name, up.body) {
		return
	}
	err := error(fs.ErrExist)
	if a.Status != http.StatusPreconditionFailed {
		err = &robocache.Error{Class: robocache.ErrTemporary, Op: "commit", Msg: "the server lost the upload", Hint: "write it again"}
	}
	guard.Fail(up.s.Fail("commit", up.name, err))
}

// parts makes a large object of parts, each by send, which gives its ETag; one that fails leaves none.
func (up *upload) parts(total, size int64, condition http.Header, send func(id url.Values, off, n int64) string) {
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
	size = max(size, (total+maxParts-1)/maxParts)
	type part struct {
		PartNumber int
		ETag       string
	}
	all := struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []part
	}{Part: make([]part, (total+size-1)/size)}
	g, ctx := errgroup.WithContext(up.ctx)
	g.SetLimit(atOnce)
	for i := range all.Part {
		g.Go(func() (err error) {
			defer guard.Into(&err)
			if ctx.Err() != nil { // a part that has begun goes on: one that comes after the end of an upload may bring it back
				return ctx.Err()
			}
			off := int64(i) * size
			all.Part[i] = part{i + 1, send(url.Values{"uploadId": id["uploadId"], "partNumber": {strconv.Itoa(i + 1)}}, off, min(size, total-off))}
			return nil
		})
	}
	guard.Check(g.Wait())
	text := guard.Must(xml.Marshal(all))
	body := io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))
	a := up.do(http.MethodPost, id, join(hashed(body), condition), body, http.StatusPreconditionFailed, http.StatusNotFound)
	late(a)
	up.finish(a)
	done = true
}

// late fails where an error came after the status.
func late(a *store.Answer) {
	var refused struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(a.Body, &refused) == nil && a.Status == http.StatusOK {
		guard.Fail(&robocache.Error{Class: robocache.ErrTemporary, Op: "commit", Want: "the upload's end", Got: refused.Code})
	}
}

// Move lets the server copy an object, and deletes it.
func (s *Store) Move(ctx context.Context, from, to string) (err error) {
	defer guard.Into(&err)
	from, source := s.key(ctx, "move", from)
	to, u := s.key(ctx, "move", to)
	e := guard.Must(s.Stat(ctx, from))
	up := &upload{s: s, ctx: ctx, name: to, u: u, copies: min(e.Size, oneCopy)}
	copied := func(q url.Values, bytes string) string {
		header := http.Header{"X-Amz-Copy-Source": {s3utils.EncodePath("/" + s.name + "/" + s.prefix + from)}, "X-Amz-Copy-Source-If-Match": {e.Version}}
		if bytes != "" {
			header.Set("X-Amz-Copy-Source-Range", bytes)
		}
		a := up.do(http.MethodPut, q, header, nil)
		late(a)
		var said struct{ ETag string }
		_ = xml.Unmarshal(a.Body, &said)
		return said.ETag
	}
	if e.Size <= oneCopy {
		copied(nil, "")
	} else {
		up.parts(e.Size, oneCopy, nil, func(id url.Values, off, n int64) string {
			return copied(id, fmt.Sprintf("bytes=%d-%d", off, off+n-1))
		})
	}
	guard.Must(s.Do(ctx, "move", from, store.Request{Method: http.MethodDelete, URL: source, Expect: []int{http.StatusNotFound}}))
	return nil
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) (err error) {
	defer guard.Into(&err)
	name, u := s.key(ctx, "remove", name)
	guard.Must(s.Stat(ctx, name)) // to the server one that is not there is removed
	guard.Must(s.Do(ctx, "remove", name, store.Request{Method: http.MethodDelete, URL: u, Expect: []int{http.StatusNotFound}}))
	return nil
}
