package bag

import (
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// FileKind describes files that each contain one recording.
type FileKind struct {
	Endings []string // endings of the file names
	Magic   string   // first bytes of the files
}

// OpenAt opens the dataset at a URI. open receives the file name, or "" for a folder. If open
// fails, OpenAt closes the store.
func OpenAt(
	uri string,
	opt robocache.OpenOptions,
	kind FileKind,
	open func(s store.Store, file string) (*Dataset, error),
) (*Dataset, error) {
	s, file, err := kind.locate(uri, opt)
	if err != nil {
		return nil, err
	}
	d, err := open(s, file)
	if err != nil {
		store.Close(s)
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return d, nil
}

// DetectAt calls matches with the store and the file of a URI, or "" for a folder. It returns false
// if nothing is at the URI.
func DetectAt(
	uri string,
	opt robocache.OpenOptions,
	kind FileKind,
	matches func(s store.Store, file string) (bool, error),
) (ok bool, err error) {
	defer guard.Recover("detect", &err)
	s, file, err := kind.locate(uri, opt)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) {
		return false, nil
	}
	guard.Check(err)
	defer store.Close(s)
	return matches(s, file)
}

// locate opens the store of a URI. file is "" for a folder, or the name of a file of this kind. For
// a local file with an unknown ending, locate reads the first bytes.
func (k FileKind) locate(
	uri string,
	opt robocache.OpenOptions,
) (s store.Store, file string, err error) {
	return store.Locate(uri, opt, func(name string) bool {
		return Named(name, k.Endings...) || store.FileStartsWith(uri, k.Magic)
	})
}

// Named reports whether a name has one of the endings, ignoring case.
func Named(name string, endings ...string) bool {
	for _, e := range endings {
		if len(name) > len(e) && strings.EqualFold(name[len(name)-len(e):], e) {
			return true
		}
	}
	return false
}
