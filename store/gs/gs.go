// Package gs is the store behind gs://bucket/prefix, Google Cloud Storage: objects are read by
// ranges of a pinned generation, listed and written by its JSON API.
//
//	gs://bucket/prefix?endpoint=http://host:port&anonymous=true
//
// Credentials are the application default ones (GOOGLE_APPLICATION_CREDENTIALS, gcloud's, a
// machine's own); without any, and at an endpoint of one's own (also STORAGE_EMULATOR_HOST),
// requests carry none.
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

// Store is a bucket below a prefix.
type Store struct {
	*store.HTTP
	endpoint, bucket string
	prefix           string // of names: "" or "a/b/"
	tokens           func() oauth2.TokenSource
}

// Open opens what follows "gs://".
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
				return nil // none: the bucket may be open to all
			}
			return c.TokenSource
		})
	}
	opt.URI = strings.TrimRight("gs://"+bucket+"/"+prefix, "/")
	opt.VersionHeader, opt.MatchHeader = "X-Goog-Generation", "X-Goog-If-Generation-Match"
	opt.Sign, opt.Explain, opt.Versions = s.sign, explain, s.List
	if s.HTTP, err = store.NewHTTP(
		s.endpoint+"/"+bucket+"/"+(&url.URL{Path: prefix}).EscapedPath(),
		opt,
	); err != nil {
		return nil, err
	}
	if prefix != "" {
		s.prefix = prefix + "/"
	}
	return s, nil
}

func (s *Store) sign(r *http.Request) error {
	if s.tokens == nil {
		return nil
	}
	source := s.tokens()
	if source == nil {
		return nil
	}
	t, err := source.Token()
	if err != nil { // its text quotes what the server of tokens said
		class := robocache.ErrMisuse
		if refused := (*oauth2.RetrieveError)(
			nil,
		); !errors.As(err, &refused) || refused.Response == nil || refused.Response.StatusCode >= 500 ||
			refused.Response.StatusCode == http.StatusTooManyRequests {
			class = robocache.ErrTemporary // it cannot be reached
		}
		return robocache.NewError(class, "open", nil, "Google's credentials give no token").
			WithHint("gcloud auth application-default login")
	}
	t.SetAuthHeader(r)
	return nil
}

func explain(r *http.Response, _ []byte, e *robocache.Error) bool {
	if r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden {
		e.Hint = "the credentials are missing or do not allow this: gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS"
	}
	return false
}

// call is a request of the JSON API.
func (s *Store) call(
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
	return s.Do(
		ctx,
		op,
		name,
		store.Request{
			Method: method,
			URL:    u,
			Body:   body,
			Expect: []int{http.StatusPreconditionFailed},
			Whole:  whole,
		},
	)
}

// list goes through what lies below the folder dir, or with a delimiter in it.
func (s *Store) list(
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
		if _, err := s.call(
			ctx,
			"list",
			dir,
			http.MethodGet,
			"/storage/v1/b/"+s.bucket+"/o",
			q,
			nil,
			func(b []byte) bool { return json.Unmarshal(b, &page) == nil },
		); err != nil {
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

// List gives the files below a folder. Names that no path has ("a//b", marks of folders) are left
// out.
func (s *Store) List(ctx context.Context, prefix string) (files []store.Entry, err error) {
	if files, _, err = s.list(ctx, prefix, ""); err != nil {
		return files, err
	}
	return files, nil
}

// Folders names the folders directly in dir.
func (s *Store) Folders(ctx context.Context, dir string) (folders []string, err error) {
	if _, folders, err = s.list(ctx, dir, "/"); err != nil {
		return folders, err
	}
	return folders, nil
}

// Create begins an object that replaces name at Commit.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	return s.create(ctx, name, url.Values{})
}

// CreateNew is Create, but Commit fails with store.ErrExists where the name is taken by then
// (ifGenerationMatch=0).
func (s *Store) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return s.create(ctx, name, url.Values{"ifGenerationMatch": {"0"}})
}

func (s *Store) create(ctx context.Context, name string, q url.Values) (_ store.Writer, err error) {
	if name, err = s.Clean(ctx, "create", name); err != nil {
		return nil, err
	}
	q.Set("name", s.prefix+name)
	return store.Spool(
		ctx,
		s.URI(),
		name,
		func(ctx context.Context, body *io.SectionReader) (err error) {
			a, err := s.upload(ctx, name, q, body)
			if err != nil {
				return err
			}
			switch {
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

// A larger object goes up in pieces of a multiple of 256 KiB; tests lower both.
var onePut, pieceSize int64 = 64 << 20, 16 << 20

// upload sends an object at once, or piece by piece: each is tried on its own, and what the server
// has of it counts.
func (s *Store) upload(
	ctx context.Context,
	name string,
	q url.Values,
	body *io.SectionReader,
) (*store.Answer, error) {
	path, size := "/upload/storage/v1/b/"+s.bucket+"/o", body.Size()
	if size <= onePut {
		q.Set("uploadType", "media")
		return s.call(ctx, "commit", name, http.MethodPost, path, q, body, nil)
	}
	q.Set("uploadType", "resumable")
	a, err := s.call(
		ctx,
		"commit",
		name,
		http.MethodPost,
		path,
		q,
		io.NewSectionReader(body, 0, 0),
		nil,
	)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(s.endpoint)
	if err != nil {
		return nil, err
	}
	session, err := url.Parse(a.Header.Get("Location"))
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = session.Path, session.RawQuery // wherever it leads, its secret stays here
	for off := int64(0); off < size && a.Status < 400; {
		n := min(pieceSize, size-off)
		if a, err = s.Do(ctx, "commit", name, store.Request{
			Method: http.MethodPut,
			URL:    u,
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
		}); err != nil {
			return nil, err
		}
		if a.Status != http.StatusPermanentRedirect {
			return a, nil
		}
		was, last := off, int64(-1)
		_, _ = fmt.Sscanf(a.Header.Get("Range"), "bytes=0-%d", &last)
		if off = last + 1; off <= was || off > was+n {
			break
		}
	}
	return a, nil
}

// Move copies an object where it lies, as often as the server asks for a part, and deletes it.
func (s *Store) Move(ctx context.Context, from, to string) (err error) {
	clean, err := s.Clean(ctx, "move", from)
	if err != nil {
		return err
	}
	cleanValue, err := s.Clean(ctx, "move", to)
	if err != nil {
		return err
	}
	from, to = clean, cleanValue
	o := "/b/" + s.bucket + "/o/"
	q := url.Values{}
	for {
		var said struct {
			Done         bool
			RewriteToken string
		}
		if _, err := s.call(
			ctx,
			"move",
			from,
			http.MethodPost,
			"/storage/v1"+o+url.PathEscape(
				s.prefix+from,
			)+"/rewriteTo"+o+url.PathEscape(
				s.prefix+to,
			),
			q,
			nil,
			func(b []byte) bool { return json.Unmarshal(b, &said) == nil },
		); err != nil {
			return err
		}
		if said.Done {
			return s.Remove(ctx, from)
		}
		if said.RewriteToken == "" {
			return s.Fail("move", from, robocache.Temporary("", nil, "the server copies nothing"))
		}
		q.Set("rewriteToken", said.RewriteToken)
	}
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) (err error) {
	if name, err = s.Clean(ctx, "remove", name); err != nil {
		return err
	}
	if _, err := s.call(
		ctx,
		"remove",
		name,
		http.MethodDelete,
		"/storage/v1/b/"+s.bucket+"/o/"+url.PathEscape(s.prefix+name),
		nil,
		nil,
		nil,
	); err != nil {
		return err
	}
	return nil
}
