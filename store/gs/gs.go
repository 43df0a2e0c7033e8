// Package gs implements the store gs://bucket/prefix, Google Cloud Storage. It reads ranges of a
// pinned generation of an object. It lists and writes objects with the JSON API.
//
//	gs://bucket/prefix?endpoint=http://host:port&anonymous=true
//
// The credentials are the application default credentials: GOOGLE_APPLICATION_CREDENTIALS, those of
// gcloud, or those of the machine. Requests carry none if there are no credentials, or if an
// endpoint is given (also by STORAGE_EMULATOR_HOST).
package gs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

func init() {
	store.Register(
		"gs",
		func(rest string) (store.Store, error) { return Open(rest, store.HTTPOptions{}) },
	)
}

// Store is the part of a bucket below a prefix. Safe for concurrent use.
type Store struct {
	*store.HTTP
	endpoint, bucket string
	prefix           string // prefix of object names: "" or "a/b/"
	tokens           func() oauth2.TokenSource
}

// Open opens the store of the URI part after "gs://".
func Open(rest string, opt store.HTTPOptions) (_ *Store, err error) {
	bucket, prefix, query, err := store.SplitBucket("gs", rest, "endpoint", "anonymous")
	if err != nil {
		return nil, err
	}
	own := cmp.Or(query.Get("endpoint"), os.Getenv("STORAGE_EMULATOR_HOST"))
	if own != "" && !strings.Contains(own, "://") {
		own = "http://" + own
	}
	s := &Store{
		endpoint: strings.TrimRight(cmp.Or(own, "https://storage.googleapis.com"), "/"),
		bucket:   bucket,
	}
	if own == "" && query.Get("anonymous") != "true" {
		s.tokens = sync.OnceValue(func() oauth2.TokenSource {
			c, err := google.FindDefaultCredentials(
				context.Background(),
				"https://www.googleapis.com/auth/devstorage.read_write",
			)
			if err != nil {
				return nil // without credentials; the bucket may be public
			}
			return c.TokenSource
		})
	}
	opt.URI = strings.TrimRight("gs://"+bucket+"/"+prefix, "/")
	opt.VersionHeader, opt.MatchHeader = "X-Goog-Generation", "X-Goog-If-Generation-Match"
	opt.Sign = s.signRequest
	opt.Explain = explainError
	opt.Versions = s.List
	s.HTTP, err = store.NewHTTP(
		s.endpoint+"/"+bucket+"/"+(&url.URL{Path: prefix}).EscapedPath(),
		opt,
	)
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	return s, nil
}

// signRequest adds a token of the credentials to a request. Without credentials it changes nothing.
func (s *Store) signRequest(r *http.Request) error {
	if s.tokens == nil {
		return nil
	}
	source := s.tokens()
	if source == nil {
		return nil
	}
	t, err := source.Token()
	if err != nil {
		// err is left out, because its text quotes the response of the token server.
		class := robocache.ErrMisuse
		if mayRecover(err) {
			class = robocache.ErrTemporary
		}
		return robocache.NewError(class, "open", nil, "Google's credentials give no token").
			WithHint("Run: gcloud auth application-default login")
	}
	t.SetAuthHeader(r)
	return nil
}

// explainError adds a hint to an error of the credentials. It returns false, because a retry would
// fail too.
func explainError(r *http.Response, _ []byte, e *robocache.Error) bool {
	if r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden {
		e.Hint = "the credentials are missing or do not allow this: gcloud auth " +
			"application-default login, or GOOGLE_APPLICATION_CREDENTIALS"
	}
	return false
}

// callAPI sends a request of the JSON API. A failed precondition is returned as an answer and not
// as an error. whole is store.Request.Whole.
func (s *Store) callAPI(
	ctx context.Context,
	op, name, method, path string,
	query url.Values,
	body *io.SectionReader,
	whole func([]byte) bool,
) (*store.Answer, error) {
	u, err := url.Parse(s.endpoint + path + "?" + query.Encode())
	if err != nil {
		return nil, err
	}
	return s.Do(ctx, op, name, store.Request{
		Method: method,
		URL:    u,
		Body:   body,
		Expect: []int{http.StatusPreconditionFailed},
		Whole:  whole,
	})
}

// listPages lists all objects below the folder dir. With a delimiter, it lists only the objects and
// folders directly in dir.
func (s *Store) listPages(
	ctx context.Context,
	dir, delimiter string,
) (files []store.Entry, folders []string, err error) {
	if dir, err = store.CleanFolder(s.URI(), dir); err != nil {
		return files, folders, err
	}
	if dir != "" {
		dir += "/"
	}
	q := url.Values{
		"prefix":    {s.prefix + dir},
		"delimiter": {delimiter},
		"fields":    {"nextPageToken,prefixes,items(name,size,generation)"},
	}
	for {
		var page struct {
			NextPageToken string
			Prefixes      []string
			Items         []struct {
				Name, Generation string
				Size             int64 `json:",string"`
			}
		}
		isPage := func(b []byte) bool { return json.Unmarshal(b, &page) == nil }
		objects := "/storage/v1/b/" + s.bucket + "/o"
		_, err := s.callAPI(ctx, "list", dir, http.MethodGet, objects, q, nil, isPage)
		if err != nil {
			return files, folders, err
		}
		for _, o := range page.Items {
			if name := store.KeyName(o.Name, s.prefix); name != "" {
				files = append(files, store.Entry{Name: name, Size: o.Size, Version: o.Generation})
			}
		}
		for _, p := range page.Prefixes {
			if name := store.KeyName(strings.TrimSuffix(p, "/"), s.prefix); name != "" {
				folders = append(folders, name[strings.LastIndexByte(name, '/')+1:])
			}
		}
		if page.NextPageToken == "" {
			slices.SortFunc(
				files,
				func(a, b store.Entry) int { return strings.Compare(a.Name, b.Name) },
			)
			slices.Sort(folders)
			return files, folders, nil
		}
		q.Set("pageToken", page.NextPageToken)
	}
}

// List returns the files below a folder. It omits objects whose names are not valid paths, such as
// "a//b" and folder markers.
func (s *Store) List(ctx context.Context, prefix string) (files []store.Entry, err error) {
	if files, _, err = s.listPages(ctx, prefix, ""); err != nil {
		return files, err
	}
	return files, nil
}

// Folders returns the names of the folders directly in dir.
func (s *Store) Folders(ctx context.Context, dir string) (folders []string, err error) {
	if _, folders, err = s.listPages(ctx, dir, "/"); err != nil {
		return folders, err
	}
	return folders, nil
}

// Create begins an object that replaces name at Commit.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	return s.createObject(ctx, name, url.Values{})
}

// CreateNew is Create, but Commit returns store.ErrExists if the name exists by then
// (ifGenerationMatch=0).
func (s *Store) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return s.createObject(ctx, name, url.Values{"ifGenerationMatch": {"0"}})
}

// createObject begins an object, which Commit uploads. q holds the conditions of the upload.
func (s *Store) createObject(
	ctx context.Context,
	name string,
	q url.Values,
) (_ store.Writer, err error) {
	if name, err = s.Clean(ctx, "create", name); err != nil {
		return nil, err
	}
	q.Set("name", s.prefix+name)
	return store.Spool(
		ctx,
		s.URI(),
		name,
		func(ctx context.Context, body *io.SectionReader) (err error) {
			a, err := s.uploadObject(ctx, name, q, body)
			if err != nil {
				return err
			}
			switch {
			// An earlier attempt may have stored the object.
			case a.Status < 300 || a.Tries > 1 && store.Holds(ctx, s, name, body):
				return nil
			case a.Status == http.StatusPreconditionFailed:
				return s.Fail("commit", name, fs.ErrExist)
			}
			return s.Fail(
				"commit",
				name,
				robocache.Temporary("", nil, "the server lost the upload").
					WithHint("write it again"),
			)
		},
	)
}

// mayRecover reports whether a later request for a token may succeed. It returns false if the token
// server refused the credentials.
func mayRecover(err error) bool {
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) || refused.Response == nil {
		return true // the token server cannot be reached
	}
	status := refused.Response.StatusCode
	return status >= 500 || status == http.StatusTooManyRequests
}

// Objects above singleUploadMax are uploaded in pieces of a multiple of 256 KiB. Tests lower both.
var singleUploadMax, pieceSize int64 = 64 << 20, 16 << 20

// uploadObject uploads an object in one request or in pieces. Each piece is retried separately, and
// the upload continues after the bytes that the server has.
func (s *Store) uploadObject(
	ctx context.Context,
	name string,
	q url.Values,
	body *io.SectionReader,
) (*store.Answer, error) {
	path := "/upload/storage/v1/b/" + s.bucket + "/o"
	size := body.Size()
	if size <= singleUploadMax {
		q.Set("uploadType", "media")
		return s.callAPI(ctx, "commit", name, http.MethodPost, path, q, body, nil)
	}
	q.Set("uploadType", "resumable")
	noBody := io.NewSectionReader(body, 0, 0)
	a, err := s.callAPI(ctx, "commit", name, http.MethodPost, path, q, noBody, nil)
	if err != nil {
		return nil, err
	}
	session, err := s.sessionURL(a)
	if err != nil {
		return nil, err
	}
	for off := int64(0); off < size && a.Status < 400; {
		n := min(pieceSize, size-off)
		a, err = s.Do(ctx, "commit", name, store.Request{
			Method: http.MethodPut,
			URL:    session,
			Header: http.Header{
				"Content-Range": {fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, size)},
			},
			Body: io.NewSectionReader(body, off, n),
			Expect: []int{
				http.StatusPermanentRedirect,
				http.StatusPreconditionFailed,
				http.StatusNotFound,
				http.StatusGone,
			},
		})
		if err != nil {
			return nil, err
		}
		if a.Status != http.StatusPermanentRedirect {
			return a, nil
		}
		// The server may have stored only a part of the piece. Continue after its last byte.
		last := int64(-1)
		_, _ = fmt.Sscanf(a.Header.Get("Range"), "bytes=0-%d", &last)
		next := last + 1
		if next <= off || next > off+n {
			break // the server lost bytes, or reports more than it received
		}
		off = next
	}
	return a, nil
}

// sessionURL returns the URL to which the pieces of a resumable upload are sent. a is the answer
// that began the upload. The path and the query of its Location contain a secret, so the URL always
// has the host of s.endpoint.
func (s *Store) sessionURL(a *store.Answer) (*url.URL, error) {
	u, err := url.Parse(s.endpoint)
	if err != nil {
		return nil, err
	}
	session, err := url.Parse(a.Header.Get("Location"))
	if err != nil {
		return nil, err
	}
	u.Path = session.Path
	u.RawQuery = session.RawQuery
	return u, nil
}

// Move copies an object on the server and deletes the original. The server may need several
// requests for the copy.
func (s *Store) Move(ctx context.Context, from, to string) (err error) {
	cleanFrom, err := s.Clean(ctx, "move", from)
	if err != nil {
		return err
	}
	cleanTo, err := s.Clean(ctx, "move", to)
	if err != nil {
		return err
	}
	from, to = cleanFrom, cleanTo
	objects := "/b/" + s.bucket + "/o/"
	path := "/storage/v1" + objects + url.PathEscape(s.prefix+from) +
		"/rewriteTo" + objects + url.PathEscape(s.prefix+to)
	q := url.Values{}
	for {
		var answer struct {
			Done         bool
			RewriteToken string
		}
		isAnswer := func(b []byte) bool { return json.Unmarshal(b, &answer) == nil }
		_, err := s.callAPI(ctx, "move", from, http.MethodPost, path, q, nil, isAnswer)
		if err != nil {
			return err
		}
		if answer.Done {
			return s.Remove(ctx, from)
		}
		if answer.RewriteToken == "" {
			return s.Fail(
				"move",
				from,
				robocache.Temporary("", nil, "the server did not copy the object"),
			)
		}
		q.Set("rewriteToken", answer.RewriteToken)
	}
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) (err error) {
	if name, err = s.Clean(ctx, "remove", name); err != nil {
		return err
	}
	path := "/storage/v1/b/" + s.bucket + "/o/" + url.PathEscape(s.prefix+name)
	_, err = s.callAPI(ctx, "remove", name, http.MethodDelete, path, nil, nil, nil)
	return err
}
