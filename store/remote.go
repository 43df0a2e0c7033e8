package store

import "github.com/goatnote-inc/robocache"

// Remote reports whether reads of a file wait for a network, so that reading ahead is worthwhile.
// Decorators report it for the wrapped file.
func Remote(f robocache.Ranged) bool {
	return robocache.IsRemote(f)
}

// Remote returns true, because each read is a request.
func (f *httpFile) Remote() bool { return true }

// Versioned reports whether the version distinguishes a file from another one of the same size, so
// that its bytes may be cached. This is false if a server sends neither an ETag nor an old enough
// Last-Modified. Decorators report it for the wrapped file.
func Versioned(f robocache.Ranged) bool {
	v, ok := f.(interface{ Versioned() bool })
	return f.Version() != "" && (!ok || v.Versioned())
}

// Versioned returns false if the version contains little more than the size.
func (f *httpFile) Versioned() bool { return f.pin.etag != "" || f.pin.isSettled }
