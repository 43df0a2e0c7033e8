package bag

import (
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// FileKind describes files that are a recording each.
type FileKind struct {
	Endings []string // of their names
	Magic   string   // the bytes that they begin with
}

// OpenAt opens the dataset at a URI: of a folder with file "", or of a file of a kind. The store is
// closed where that fails.
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

// DetectAt asks is for a store and a file in it, or "" for a folder. Where nothing is, it is no
// format's; who reads files of other kinds says what is wrong.
func DetectAt(
	uri string,
	opt robocache.OpenOptions,
	kind FileKind,
	is func(s store.Store, file string) (bool, error),
) (ok bool, err error) {
	defer guard.Recover("detect", &err)
	s, file, err := kind.locate(uri, opt)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) {
		return false, nil
	}
	guard.Check(err)
	defer store.Close(s)
	return is(s, file)
}

// locate opens the store of a URI: of a folder with file "", or of a file of the kind by its folder
// and name. On this machine the first bytes of a file without a known ending are read.
func (k FileKind) locate(
	uri string,
	opt robocache.OpenOptions,
) (s store.Store, file string, err error) {
	return store.Locate(uri, opt, func(name string) bool {
		return Named(name, k.Endings...) || store.FileStartsWith(uri, k.Magic)
	})
}

// Named says that a name has one of some endings, in any case.
func Named(name string, endings ...string) bool {
	for _, e := range endings {
		if len(name) > len(e) && strings.EqualFold(name[len(name)-len(e):], e) {
			return true
		}
	}
	return false
}
