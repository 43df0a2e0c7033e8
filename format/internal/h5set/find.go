package h5set

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// Find opens the store of a URI and lists its HDF5 files: the one that the URI names, or those of the folder. found are its links that may
// hide others.
func Find(ctx context.Context, uri string, opt robocache.OpenOptions) (_ store.Store, names []string, found []robocache.Finding, err error) {
	s, file, err := locate(uri, opt)
	if err != nil {
		return nil, nil, nil, err
	}
	names = []string{file}
	var links []store.Entry
	if file == "" {
		names, links, err = list(ctx, s)
	}
	if err == nil && len(names) == 0 && len(links) > 0 {
		err = links[0].Err
	}
	if err == nil && len(names) == 0 {
		err = &robocache.Error{Class: robocache.ErrNotFound, Op: "open", Where: robocache.Where{"dataset": robocache.Redact(uri)}, Msg: "no HDF5 files here"}
	}
	if err != nil {
		store.Close(s)
		return nil, nil, nil, err
	}
	return s, names, store.Findings(links, "link-not-followed"), nil
}

// Detect says whether the first HDF5 file at a URI that can be opened is as is says. What is no HDF5 file is none, without an error.
func Detect(ctx context.Context, uri string, opt robocache.OpenOptions, is func(f *h5.File) bool) (ok bool, err error) {
	defer guard.Malformed("hdf5 detect", &err)
	if !strings.Contains(uri, "://") && !likely(uri) {
		return false, nil
	}
	s, names, _, err := Find(ctx, uri, opt)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) {
		return false, nil
	}
	guard.Check(err)
	defer store.Close(s)
	name := names[0]
	r, err := s.Open(ctx, name)
	for i := 1; err != nil && i < len(names) && errors.Is(err, robocache.ErrMalformed); i++ { // a link that leads nowhere, a FIFO: another file tells
		if other, e := s.Open(ctx, names[i]); e == nil {
			r, name, err = other, names[i], nil
		}
	}
	if errors.Is(err, robocache.ErrNotFound) {
		return false, nil
	}
	guard.Check(err)
	defer r.Close()
	if !guard.Must(h5.Detect(ctx, r)) {
		return false, nil
	}
	f := guard.Must(h5.Open(ctx, r, name, h5.NewCache(4<<20)))
	err = guard.Try(func() { ok = is(f) })
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrUnsupported) {
		return false, nil
	}
	return ok, err
}

// lookAt bounds how many names of a folder are looked at before it is said to hold no HDF5 files: other formats' folders hold millions.
const lookAt = 4096

var errEnough = errors.New("enough")

// likely says whether a local path may hold HDF5 files.
func likely(path string) bool {
	found, seen := IsFile(path), 0
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if seen++; seen > lookAt {
			return errEnough
		}
		if IsFile(p) && p != path { // a folder in a file's place too
			found = true
			return errEnough
		}
		return nil
	})
	return found || err != nil && !errors.Is(err, errEnough)
}
