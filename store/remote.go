package store

import "github.com/goatnote-inc/robocache"

// Remote says whether reads of a file wait for a network, so that it pays to read ahead of need.
// Decorators answer for what they wrap.
func Remote(f robocache.Ranged) bool {
	return robocache.IsRemote(f)
}

// Remote is true: each read is a request.
func (f *httpFile) Remote() bool { return true }

// Versioned says whether a file's version tells it from another of the same size, so that its bytes
// may be kept under it: not so where a server sends neither ETag nor a Last-Modified that lies far
// enough back. Decorators answer for what they wrap.
func Versioned(f robocache.Ranged) bool {
	v, ok := f.(interface{ Versioned() bool })
	return f.Version() != "" && (!ok || v.Versioned())
}

// Versioned is false where the version is little more than the size.
func (f *httpFile) Versioned() bool { return f.pin.etag != "" || f.pin.settled }
