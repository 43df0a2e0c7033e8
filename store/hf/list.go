package hf

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// listing is the Hub's listing of a folder at a commit. Paths are relative to the repository's
// root.
type listing struct {
	files   []store.Entry
	folders []string
}

// listings caches listings for the process. The listing of a commit never changes, and each format
// that tests a dataset requests the same ones.
var listings sync.Map

// maxCachedListing is the number of files in the largest listing that is cached.
const maxCachedListing = 100_000

var nextLink = regexp.MustCompile(`<([^>]*)>;\s*rel="?next"?`)

// listedFile is a file or folder in the Hub's listing.
type listedFile struct {
	Type, Path, OID string
	Size            int64
	LFS             *struct{ OID string }
}

// addPage adds a page of the Hub's listing. Names that are not clean are left out.
func (l *listing) addPage(page []listedFile) {
	for _, e := range page {
		if clean, err := store.CleanName(e.Path); err != nil || clean != e.Path {
			continue
		}
		if e.Type == "directory" {
			l.folders = append(l.folders, e.Path)
			continue
		}
		id := e.OID
		if e.LFS != nil {
			id = e.LFS.OID
		}
		l.files = append(
			l.files,
			store.Entry{Name: e.Path, Size: e.Size, Version: `"` + id + `"`},
		)
	}
}

// nextPage returns the URL of the page after u, or nil if u is the last page.
func (s *repository) nextPage(u *url.URL, a *store.Answer) (*url.URL, error) {
	m := nextLink.FindStringSubmatch(a.Header.Get("Link"))
	if m == nil {
		return nil, nil
	}
	next, err := u.Parse(m[1])
	// Another host must not receive the token, and the same page would repeat forever.
	isOurs := err == nil && next.Host == u.Host && next.Scheme == u.Scheme
	if !isOurs || next.String() == u.String() {
		return nil, robocache.Malformed(
			"list",
			robocache.Where{"dataset": s.uri},
			"the Hub's listing names a wrong next page: one of another host, or the same page",
		)
	}
	return next, nil
}

// listFolder requests the listing of a folder, with subfolders if deep is set. A missing folder has
// an empty listing.
func (s *repository) listFolder(
	ctx context.Context,
	at *snapshot,
	dir string,
	deep bool,
) (*listing, error) {
	u := at.api.JoinPath(dir)
	u.RawQuery = "recursive=false"
	if deep {
		u.RawQuery = "recursive=true"
	}
	key := u.String()
	if l, ok := listings.Load(key); ok {
		return l.(*listing), nil
	}
	l := &listing{}
	for u != nil {
		var page []listedFile
		isPage := func(body []byte) bool {
			page = nil
			return json.Unmarshal(body, &page) == nil
		}
		request := store.Request{Method: http.MethodGet, URL: u, Whole: isPage}
		a, err := at.hub.Do(ctx, "list", dir, request)
		if errors.Is(err, robocache.ErrNotFound) && dir != "" {
			break
		}
		if err != nil {
			return nil, err
		}
		l.addPage(page)
		if u, err = s.nextPage(u, a); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(l.files, func(a, b store.Entry) int { return strings.Compare(a.Name, b.Name) })
	if len(l.files) <= maxCachedListing {
		listings.Store(key, l)
	}
	return l, nil
}

// List returns the files below a folder. Offline, it returns those in the cache.
func (s *repository) List(ctx context.Context, prefix string) (out []store.Entry, err error) {
	if prefix, err = store.CleanFolder(s.uri, prefix); err != nil {
		return out, err
	}
	at, err := s.openSnapshot(ctx)
	if err != nil {
		return out, err
	}
	if at.hub != nil {
		list, err := s.listFolder(ctx, at, prefix, true)
		if err != nil {
			return out, err
		}
		return slices.Clone(list.files), nil
	}
	out, err = at.cached.List(ctx, prefix)
	for i := range out {
		out[i].Version = at.blobVersion(out[i].Name, out[i].Version)
	}
	return out, s.withDatasetURI(err)
}

// Folders returns the names of the folders directly in dir.
func (s *repository) Folders(ctx context.Context, dir string) (out []string, err error) {
	if dir, err = store.CleanFolder(s.uri, dir); err != nil {
		return out, err
	}
	at, err := s.openSnapshot(ctx)
	if err != nil {
		return out, err
	}
	if at.hub == nil {
		return at.cached.Folders(ctx, dir)
	}
	list, err := s.listFolder(ctx, at, dir, false)
	if err != nil {
		return out, err
	}
	for _, f := range list.folders {
		out = append(out, path.Base(f))
	}
	slices.Sort(out)
	return out, nil
}
