package bag

import (
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// OpenAt opens the dataset at a URI: of a folder with file "", or of a file with one of some endings. The store is closed where that fails.
func OpenAt(uri string, opt robocache.OpenOptions, open func(s store.Store, file string) (*Dataset, error), endings ...string) (*Dataset, error) {
	s, file, err := Locate(uri, opt, endings...)
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

// DetectAt asks is for a store and a file in it, or "" for a folder. Where nothing is, it is no format's; who reads files of other kinds says what is wrong.
func DetectAt(uri string, opt robocache.OpenOptions, is func(s store.Store, file string) (bool, error), endings ...string) (ok bool, err error) {
	defer guard.Recover("detect", &err)
	s, file, err := Locate(uri, opt, endings...)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) {
		return false, nil
	}
	guard.Check(err)
	defer store.Close(s)
	return is(s, file)
}

// Locate opens the store of a URI: of a folder with file "", or of a file with one of these endings by its folder and name.
func Locate(uri string, opt robocache.OpenOptions, endings ...string) (s store.Store, file string, err error) {
	return store.Locate(uri, opt, func(name string) bool { return Named(name, endings...) })
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
