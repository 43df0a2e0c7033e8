package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// checkEvery is how long a local handle trusts its last look at size and mtime. Looking at each
// read would double the system calls of the hot path; mtime itself has a grain of some milliseconds
// on most file systems.
const checkEvery = 10 * time.Millisecond

// localFile is one open regular file. It pins the inode: a file replaced by rename stays readable
// as it was.
type localFile struct {
	f       *os.File
	uri     string
	name    string
	size    int64
	mtime   int64
	opened  time.Time
	checked atomic.Int64 // ns after opened of the last look
	bad     atomic.Bool  // seen changed: every read fails from then on
}

func (h *localFile) Size() int64     { return h.size }
func (h *localFile) Version() string { return localVersion(h.size, h.mtime) }

// ReadAt is one pread, without allocation. A change in place is reported by the first read begun
// checkEvery after it, and at the latest by Close.
func (h *localFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if outside(off, len(p), h.size) {
		return pastEnd(h.uri, h.name, off, len(p), h.size)
	}
	if h.bad.Load() {
		return changed(h.uri, h.name, h.Version(), "other bytes")
	}
	if len(p) > 0 {
		if _, err := h.f.ReadAt(p, off); err != nil {
			return h.failed(err)
		}
	}
	// After the read: a change before it, or during it, is then seen.
	at := int64(time.Since(h.opened))
	if last := h.checked.Load(); at-last >= int64(checkEvery) &&
		h.checked.CompareAndSwap(last, at) {
		return h.unchanged()
	}
	return nil
}

// failed is a read's error; an end of file inside the size at opening means that the file shrank.
func (h *localFile) failed(err error) error {
	if errors.Is(err, io.EOF) {
		if cerr := h.unchanged(); cerr != nil {
			return cerr
		}
		err = io.ErrUnexpectedEOF
	}
	return fail("read", h.uri, h.name, err)
}

func (h *localFile) unchanged() error {
	info, err := h.f.Stat()
	if err != nil {
		return fail("stat", h.uri, h.name, err)
	}
	if size, mtime := info.Size(), info.ModTime().UnixNano(); size != h.size || mtime != h.mtime {
		h.bad.Store(true)
		return changed(h.uri, h.name, h.Version(), "version "+localVersion(size, mtime))
	}
	return nil
}

// Close reports a change that no read was late enough to see. A second Close does nothing.
func (h *localFile) Close() error {
	err := h.unchanged()
	cerr := h.f.Close()
	if errors.Is(cerr, fs.ErrClosed) {
		return nil
	}
	if err == nil {
		err = fail("close", h.uri, h.name, cerr)
	}
	return err
}
