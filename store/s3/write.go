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
	singleUploadMax = 64 << 20 // a larger object is uploaded in parts
	partSize        = 16 << 20 // size of a part; a server accepts at most maxParts
	maxParts        = 10_000
	partsAtOnce     = 4 // parts that are uploaded concurrently
)

// copyPartSize is the largest object that is copied in one request. Larger objects are copied in
// parts of this size. Tests lower it.
var copyPartSize int64 = 1 << 30

// Create begins an object that replaces name at Commit.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	return s.createObject(ctx, name, nil)
}

// CreateNew is Create, but Commit returns store.ErrExists if the name exists by then
// (If-None-Match).
func (s *Store) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return s.createObject(ctx, name, http.Header{"If-None-Match": {"*"}})
}

// createObject begins an object, which Commit uploads in one request or in parts.
func (s *Store) createObject(
	ctx context.Context,
	name string,
	condition http.Header,
) (_ store.Writer, err error) {
	name, u, err := s.objectURL(ctx, "create", name)
	if err != nil {
		return nil, err
	}
	return store.Spool(
		ctx,
		s.URI(),
		name,
		func(ctx context.Context, body *io.SectionReader) (err error) {
			up := &upload{s: s, ctx: ctx, name: name, u: u, body: body}
			if body.Size() <= singleUploadMax {
				return up.uploadWhole(condition)
			}
			return up.uploadParts(body.Size(), partSize, condition, up.uploadPart)
		},
	)
}

// objectURL returns the clean name and the URL of an object.
func (s *Store) objectURL(ctx context.Context, op, name string) (string, *url.URL, error) {
	var err error
	if name, err = s.Clean(ctx, op, name); err != nil {
		return "", nil, err
	}
	u := *s.bucket
	u.Path = strings.TrimRight(u.Path, "/") + "/" + s.prefix + name
	return name, &u, nil
}

// bodyHashHeader returns the header with which the server verifies the body.
func bodyHashHeader(body *io.SectionReader) (http.Header, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(body, 0, body.Size())); err != nil {
		return nil, err
	}
	return http.Header{"X-Amz-Content-Sha256": {hex.EncodeToString(h.Sum(nil))}}, nil
}

// mergeHeaders adds the headers of b to a and returns a.
func mergeHeaders(a, b http.Header) http.Header {
	for k, v := range b {
		a[k] = v
	}
	return a
}

// upload is the upload of one object.
type upload struct {
	s    *Store
	ctx  context.Context
	name string
	u    *url.URL
	body *io.SectionReader

	copies int64 // see store.Request.Copies
}

// sendUpload sends a request for the object of the upload. expect lists accepted error statuses.
func (up *upload) sendUpload(
	method string,
	query url.Values,
	header http.Header,
	body *io.SectionReader,
	expect ...int,
) (*store.Answer, error) {
	u := *up.u
	u.RawQuery = query.Encode()
	return up.s.Do(up.ctx, "commit", up.name, store.Request{
		Method: method,
		URL:    &u,
		Header: header,
		Body:   body,
		Copies: up.copies,
		Expect: expect,
	})
}

// uploadWhole uploads the body in one request.
func (up *upload) uploadWhole(condition http.Header) error {
	header, err := bodyHashHeader(up.body)
	if err != nil {
		return err
	}
	answer, err := up.sendUpload(
		http.MethodPut,
		nil,
		mergeHeaders(header, condition),
		up.body,
		http.StatusPreconditionFailed,
	)
	if err != nil {
		return err
	}
	return up.checkCommit(answer)
}

// uploadPart uploads n bytes of the body from off as the part id, and returns the part's ETag.
func (up *upload) uploadPart(id url.Values, off, n int64) (etag string, err error) {
	part := io.NewSectionReader(up.body, off, n)
	header, err := bodyHashHeader(part)
	if err != nil {
		return "", err
	}
	answer, err := up.sendUpload(http.MethodPut, id, header, part)
	if err != nil {
		return "", err
	}
	return answer.Header.Get("ETag"), nil
}

// checkCommit returns the error of the final response of an upload, or nil if it succeeded.
func (up *upload) checkCommit(a *store.Answer) error {
	switch {
	case a.Status < 300:
		return nil
	case a.Tries > 1 && up.body != nil && store.Holds(up.ctx, up.s, up.name, up.body):
		return nil // an earlier attempt succeeded, and its response was lost
	case a.Status == http.StatusPreconditionFailed:
		return up.s.Fail("commit", up.name, fs.ErrExist)
	}
	return up.s.Fail("commit", up.name,
		robocache.Temporary("commit", nil, "the server lost the upload").
			WithHint("write it again"))
}

// uploadParts creates a large object of total bytes from parts of at least size bytes. sendPart
// uploads one part and returns its ETag. condition holds the headers of the final request. On error,
// all parts are removed.
func (up *upload) uploadParts(
	total, size int64,
	condition http.Header,
	sendPart func(id url.Values, off, n int64) (string, error),
) error {
	answer, err := up.sendUpload(http.MethodPost, url.Values{"uploads": {""}}, nil, nil)
	if err != nil {
		return err
	}
	var begun struct{ UploadId string }
	err = xml.Unmarshal(answer.Body, &begun)
	if err != nil || begun.UploadId == "" {
		return robocache.Malformed("commit", nil, "the server did not begin a multipart upload")
	}
	id := url.Values{"uploadId": {begun.UploadId}}
	done := false
	defer func() {
		if !done {
			up.abortUpload(id)
		}
	}()
	parts, err := up.sendParts(id, total, size, sendPart)
	if err != nil {
		return err
	}
	if err := up.joinParts(id, parts, condition); err != nil {
		return err
	}
	done = true
	return nil
}

// uploadedPart is an uploaded part of a large object.
type uploadedPart struct {
	PartNumber int
	ETag       string
}

// abortUpload removes the parts of an upload.
func (up *upload) abortUpload(id url.Values) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(up.ctx), 30*time.Second)
	defer cancel()
	u := *up.u
	u.RawQuery = id.Encode()
	_, _ = up.s.Do(ctx, "abort", up.name, store.Request{
		Method: http.MethodDelete,
		URL:    &u,
		Expect: []int{http.StatusNotFound},
	})
}

// sendParts uploads total bytes in parts of at least size bytes.
func (up *upload) sendParts(
	id url.Values,
	total, size int64,
	sendPart func(id url.Values, off, n int64) (string, error),
) ([]uploadedPart, error) {
	size = max(size, (total+maxParts-1)/maxParts)
	parts := make([]uploadedPart, (total+size-1)/size)
	g, ctx := errgroup.WithContext(up.ctx)
	g.SetLimit(partsAtOnce)
	for i := range parts {
		g.Go(func() (err error) {
			// A part that has started is not canceled, because a part that arrives after the abort
			// may restore the upload.
			if ctx.Err() != nil {
				return ctx.Err()
			}
			off := int64(i) * size
			partID := url.Values{
				"uploadId":   id["uploadId"],
				"partNumber": {strconv.Itoa(i + 1)},
			}
			etag, err := sendPart(partID, off, min(size, total-off))
			if err != nil {
				return err
			}
			parts[i] = uploadedPart{i + 1, etag}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return parts, nil
}

// joinParts makes the object from its parts.
func (up *upload) joinParts(id url.Values, parts []uploadedPart, condition http.Header) error {
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []uploadedPart
	}{Part: parts})
	if err != nil {
		return err
	}
	body := io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))
	hashHeader, err := bodyHashHeader(body)
	if err != nil {
		return err
	}
	a, err := up.sendUpload(
		http.MethodPost,
		id,
		mergeHeaders(hashHeader, condition),
		body,
		http.StatusPreconditionFailed,
		http.StatusNotFound,
	)
	if err != nil {
		return err
	}
	if err := lateError(a); err != nil {
		return err
	}
	return up.checkCommit(a)
}

// lateError returns the error that a server sent in the body after status 200.
func lateError(a *store.Answer) error {
	var refused struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	if xml.Unmarshal(a.Body, &refused) == nil && a.Status == http.StatusOK {
		return robocache.Temporary("commit", nil, "").Expected("the upload's end", refused.Code)
	}
	return nil
}

// Move copies an object on the server and deletes the original.
func (s *Store) Move(ctx context.Context, from, to string) (err error) {
	from, source, err := s.objectURL(ctx, "move", from)
	if err != nil {
		return err
	}
	to, u, err := s.objectURL(ctx, "move", to)
	if err != nil {
		return err
	}
	e, err := s.Stat(ctx, from)
	if err != nil {
		return err
	}
	up := &upload{s: s, ctx: ctx, name: to, u: u, copies: min(e.Size, copyPartSize)}
	// copyBytes copies the object, or a range of its bytes, and returns the ETag of the copy.
	copyBytes := func(q url.Values, bytes string) (string, error) {
		header := http.Header{
			"X-Amz-Copy-Source": {
				s3utils.EncodePath("/" + s.name + "/" + s.prefix + from),
			},
			"X-Amz-Copy-Source-If-Match": {e.Version},
		}
		if bytes != "" {
			header.Set("X-Amz-Copy-Source-Range", bytes)
		}
		a, err := up.sendUpload(http.MethodPut, q, header, nil)
		if err != nil {
			return "", err
		}
		if err := lateError(a); err != nil {
			return "", err
		}
		var copied struct{ ETag string }
		_ = xml.Unmarshal(a.Body, &copied)
		return copied.ETag, nil
	}
	if e.Size <= copyPartSize {
		_, err = copyBytes(nil, "")
	} else {
		copyPart := func(id url.Values, off, n int64) (string, error) {
			return copyBytes(id, fmt.Sprintf("bytes=%d-%d", off, off+n-1))
		}
		err = up.uploadParts(e.Size, copyPartSize, nil, copyPart)
	}
	if err != nil {
		return err
	}
	return s.deleteObject(ctx, "move", from, source)
}

// deleteObject deletes an object. A missing object is not an error.
func (s *Store) deleteObject(ctx context.Context, op, name string, u *url.URL) error {
	_, err := s.Do(ctx, op, name, store.Request{
		Method: http.MethodDelete,
		URL:    u,
		Expect: []int{http.StatusNotFound},
	})
	return err
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) (err error) {
	name, u, err := s.objectURL(ctx, "remove", name)
	if err != nil {
		return err
	}
	if _, err := s.Stat(ctx, name); err != nil {
		return err
	}
	return s.deleteObject(ctx, "remove", name, u)
}
