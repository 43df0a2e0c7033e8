package store

import "os"

// inode is an open regular file.
type inode interface {
	// ReadAt reads all of p, or says why not: io.EOF at the end of the file.
	ReadAt(p []byte, off int64) (int, error)
	look() (size, mtime int64, err error)
	Close() error
}

// osFile is an inode where nothing cheaper is at hand.
type osFile struct{ *os.File }

func (f osFile) look() (size, mtime int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), info.ModTime().UnixNano(), nil
}
