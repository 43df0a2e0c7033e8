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

// checkEvery is the time for which a local handle relies on its last check of size and mtime. A
// check at every read would double the system calls. The resolution of mtime is some milliseconds
// on most file systems.
const checkEvery = 10 * time.Millisecond

// localFile is an open regular file. It pins the inode, so that a file replaced by a rename stays
// readable.
type localFile struct {
	file      *os.File
	uri       string
	name      string
	size      int64
	mtime     int64
	opened    time.Time
	checked   atomic.Int64 // nanoseconds after opened of the last check
	isChanged atomic.Bool  // the file changed: every later read fails
}

func (h *localFile) Size() int64     { return h.size }
func (h *localFile) Version() string { return localVersion(h.size, h.mtime) }

// ReadAt is one pread without allocation. A change in place is reported by the first read that
// starts checkEvery later, or by Close at the latest.
func (h *localFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if isOutside(off, len(p), h.size) {
		return rangeError(h.uri, h.name, off, len(p), h.size)
	}
	if h.isChanged.Load() {
		return changedError(h.uri, h.name, h.Version(), "other bytes")
	}
	if len(p) > 0 {
		if _, err := h.file.ReadAt(p, off); err != nil {
			return h.readError(err)
		}
	}
	// Check after the read, so that a change before or during the read is detected.
	at := int64(time.Since(h.opened))
	last := h.checked.Load()
	if at-last < int64(checkEvery) {
		return nil
	}
	if h.checked.CompareAndSwap(last, at) { // otherwise another reader checks
		return h.checkUnchanged()
	}
	return nil
}

// readError returns the error of a read. An end of file within the original size means that the
// file shrank.
func (h *localFile) readError(err error) error {
	if errors.Is(err, io.EOF) {
		if cerr := h.checkUnchanged(); cerr != nil {
			return cerr
		}
		err = io.ErrUnexpectedEOF
	}
	return storeError("read", h.uri, h.name, err)
}

// checkUnchanged compares the size and mtime of the file with those at opening. It returns
// ErrChanged if they differ.
func (h *localFile) checkUnchanged() error {
	info, err := h.file.Stat()
	if err != nil {
		return storeError("stat", h.uri, h.name, err)
	}
	size := info.Size()
	mtime := info.ModTime().UnixNano()
	if size != h.size || mtime != h.mtime {
		h.isChanged.Store(true)
		return changedError(h.uri, h.name, h.Version(), "version "+localVersion(size, mtime))
	}
	return nil
}

// Close closes the file. It reports a change that no read detected. A second Close does nothing.
func (h *localFile) Close() error {
	err := h.checkUnchanged()
	cerr := h.file.Close()
	if errors.Is(cerr, fs.ErrClosed) {
		return nil
	}
	if err == nil {
		err = storeError("close", h.uri, h.name, cerr)
	}
	return err
}
