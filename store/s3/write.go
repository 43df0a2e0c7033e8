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

// CreateNew is Create, but Commit fails with store.ErrExists where the name is taken by then
// (If-None-Match).
func (s *Store) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return s.create(ctx, name, http.Header{"If-None-Match": {"*"}})
}

func (s *Store) create(
	ctx context.Context,
	name string,
	condition http.Header,
) (_ store.Writer, err error) {
	name, u, err := s.key(ctx, "create", name)
	if err != nil {
		return nil, err
	}
	return store.Spool(
		ctx,
		s.URI(),
		name,
		func(ctx context.Context, body *io.SectionReader) (err error) {
			up := &upload{s: s, ctx: ctx, name: name, u: u, body: body}
			if body.Size() <= onePut {
				header, err := hashed(body)
				if err != nil {
					return err
				}
				answer, err := up.do(
					http.MethodPut,
					nil,
					join(header, condition),
					body,
					http.StatusPreconditionFailed,
				)
				if err != nil {
					return err
				}
				if err := up.finish(answer); err != nil {
					return err
				}
			} else {
				if err := up.parts(
					body.Size(),
					partSize,
					condition,
					func(id url.Values, off, n int64) (string, error) {
						piece := io.NewSectionReader(body, off, n)
						hashedValue, err := hashed(piece)
						if err != nil {
							return "", err
						}
						answer, err := up.do(http.MethodPut, id, hashedValue, piece)
						if err != nil {
							return "", err
						}
						return answer.Header.Get("ETag"), nil
					},
				); err != nil {
					return err
				}
			}
			return nil
		},
	)
}

// key is the URL of a clean name's object.
func (s *Store) key(ctx context.Context, op, name string) (string, *url.URL, error) {
	var err error
	if name, err = s.Clean(ctx, op, name); err != nil {
		return "", nil, err
	}
	u := *s.bucket
	u.Path = strings.TrimRight(u.Path, "/") + "/" + s.prefix + name
	return name, &u, nil
}

// hashed is the header that lets the server check what it gets.
func hashed(body *io.SectionReader) (http.Header, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(body, 0, body.Size())); err != nil {
		return nil, err
	}
	return http.Header{"X-Amz-Content-Sha256": {hex.EncodeToString(h.Sum(nil))}}, nil
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

func (up *upload) do(
	method string,
	query url.Values,
	header http.Header,
	body *io.SectionReader,
	expect ...int,
) (*store.Answer, error) {
	u := *up.u
	u.RawQuery = query.Encode()
	return up.s.Do(
		up.ctx,
		"commit",
		up.name,
		store.Request{
			Method: method,
			URL:    &u,
			Header: header,
			Body:   body,
			Copies: up.copies,
			Expect: expect,
		},
	)
}

// finish looks at the answer to what gives the object its name. Where an earlier try may have done
// that, the object that is there decides.
func (up *upload) finish(a *store.Answer) error {
	if a.Status < 300 ||
		a.Tries > 1 && up.body != nil && store.Holds(up.ctx, up.s, up.name, up.body) {
		return nil
	}
	err := error(fs.ErrExist)
	if a.Status != http.StatusPreconditionFailed {
		err = robocache.Temporary("commit", nil, "the server lost the upload").
			WithHint("write it again")
	}
	return up.s.Fail("commit", up.name, err)
}

// parts makes a large object of parts, each by send, which gives its ETag; one that fails leaves
// none.
func (up *upload) parts(
	total, size int64,
	condition http.Header,
	send func(id url.Values, off, n int64) (string, error),
) error {
	var begun struct{ UploadId string }
	{
		answer, err := up.do(http.MethodPost, url.Values{"uploads": {""}}, nil, nil)
		if err != nil {
			return err
		}
		err = xml.Unmarshal(answer.Body, &begun)
		if err != nil || begun.UploadId == "" {
			return robocache.Malformed("commit", nil, "the server begins no upload in parts")
		}
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
		_, _ = up.s.Do(
			ctx,
			"abort",
			up.name,
			store.Request{Method: http.MethodDelete, URL: &u, Expect: []int{http.StatusNotFound}},
		)
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
			// a part that has begun goes on: one that comes after the end of an upload may bring it
			// back
			if ctx.Err() != nil {
				return ctx.Err()
			}
			off := int64(i) * size
			sendValue, err := send(
				url.Values{"uploadId": id["uploadId"], "partNumber": {strconv.Itoa(i + 1)}},
				off,
				min(size, total-off),
			)
			if err != nil {
				return err
			}
			all.Part[i] = part{i + 1, sendValue}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	text, err := xml.Marshal(all)
	if err != nil {
		return err
	}
	body := io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))
	hashedValue, err := hashed(body)
	if err != nil {
		return err
	}
	a, err := up.do(
		http.MethodPost,
		id,
		join(hashedValue, condition),
		body,
		http.StatusPreconditionFailed,
		http.StatusNotFound,
	)
	if err != nil {
		return err
	}
	if err := late(a); err != nil {
		return err
	}
	if err := up.finish(a); err != nil {
		return err
	}
	done = true
	return nil
}

// late fails where an error came after the status.
func late(a *store.Answer) error {
	var refused struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(a.Body, &refused) == nil && a.Status == http.StatusOK {
		return robocache.Temporary("commit", nil, "").Expected("the upload's end", refused.Code)
	}
	return nil
}

// Move lets the server copy an object, and deletes it.
func (s *Store) Move(ctx context.Context, from, to string) (err error) {
	from, source, err := s.key(ctx, "move", from)
	if err != nil {
		return err
	}
	to, u, err := s.key(ctx, "move", to)
	if err != nil {
		return err
	}
	e, err := s.Stat(ctx, from)
	if err != nil {
		return err
	}
	up := &upload{s: s, ctx: ctx, name: to, u: u, copies: min(e.Size, oneCopy)}
	copied := func(q url.Values, bytes string) (string, error) {
		header := http.Header{
			"X-Amz-Copy-Source": {
				s3utils.EncodePath("/" + s.name + "/" + s.prefix + from),
			},
			"X-Amz-Copy-Source-If-Match": {e.Version},
		}
		if bytes != "" {
			header.Set("X-Amz-Copy-Source-Range", bytes)
		}
		a, err := up.do(http.MethodPut, q, header, nil)
		if err != nil {
			return "", err
		}
		if err := late(a); err != nil {
			return "", err
		}
		var said struct{ ETag string }
		_ = xml.Unmarshal(a.Body, &said)
		return said.ETag, nil
	}
	if e.Size <= oneCopy {
		if _, err := copied(nil, ""); err != nil {
			return err
		}
	} else {
		if err := up.parts(e.Size, oneCopy, nil, func(id url.Values, off, n int64) (string, error) {
			return copied(id, fmt.Sprintf("bytes=%d-%d", off, off+n-1))
		}); err != nil {
			return err
		}
	}
	if _, err := s.Do(
		ctx,
		"move",
		from,
		store.Request{Method: http.MethodDelete, URL: source, Expect: []int{http.StatusNotFound}},
	); err != nil {
		return err
	}
	return nil
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) (err error) {
	name, u, err := s.key(ctx, "remove", name)
	if err != nil {
		return err
	}
	if _, err := s.Stat(ctx, name); err != nil {
		return err
	} // to the server one that is not there is removed
	if _, err := s.Do(
		ctx,
		"remove",
		name,
		store.Request{Method: http.MethodDelete, URL: u, Expect: []int{http.StatusNotFound}},
	); err != nil {
		return err
	}
	return nil
}
