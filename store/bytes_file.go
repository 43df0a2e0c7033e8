package store

import (
	"context"
	"sync/atomic"
)

// bytesFile is an open file in memory. data is never modified.
type bytesFile struct {
	uri, name, version string
	data               []byte
	closed             atomic.Bool
}

func (f *bytesFile) Size() int64     { return int64(len(f.data)) }
func (f *bytesFile) Version() string { return f.version }

func (f *bytesFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.closed.Load() {
		return closedError("read", f.uri, f.name)
	}
	if isOutside(off, len(p), int64(len(f.data))) {
		return rangeError(f.uri, f.name, off, len(p), int64(len(f.data)))
	}
	copy(p, f.data[off:])
	return nil
}

func (f *bytesFile) Close() error {
	f.closed.Store(true)
	return nil
}
