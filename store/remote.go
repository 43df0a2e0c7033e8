package store

import "github.com/goatnote-inc/robocache"

// Remote says whether reads of a file wait for a network, so that it pays to read ahead of need. Decorators answer for what they wrap.
func Remote(f robocache.Ranged) bool {
	r, ok := f.(interface{ Remote() bool })
	return ok && r.Remote()
}

// Remote is true: each read is a request.
func (f *httpFile) Remote() bool { return true }

// Remote is that of the file below.
func (f *countedFile) Remote() bool { return Remote(f.Ranged) }

// Remote is that of the file below.
func (f *faultyFile) Remote() bool { return Remote(f.Ranged) }
