package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/goatnote-inc/robocache"
)

// vfsName is the name of the file system through which SQLite reads sources.
const vfsName = "robocache"

func init() { vfs.Register(vfsName, &sources) }

// source provides the files of one connection: the database and its log.
type source struct {
	ctx  context.Context // context of the current call
	file robocache.Ranged
	size int64 // bytes of file that can be read
	wal  []byte
	err  error // first error of a read

	ahead []byte // read-ahead buffer; begins at offset at
	at    int64
	next  int64 // end of the last read
}

// readAhead is the size of a read if the pages of a file are read in order.
const readAhead = 64 << 10

// readPage fills p with bytes inside the file.
func (s *source) readPage(p []byte, off int64) error {
	ordered := off == s.next
	s.next = off + int64(len(p))
	if i := off - s.at; i >= 0 && i+int64(len(p)) <= int64(len(s.ahead)) {
		copy(p, s.ahead[i:])
		return nil
	}
	n := min(readAhead, s.size-off)
	if !ordered || int64(len(p)) > n {
		return s.file.ReadAt(s.ctx, p, off)
	}
	if s.ahead == nil {
		s.ahead = make([]byte, readAhead)
	}
	s.at, s.ahead = off, s.ahead[:n]
	if err := s.file.ReadAt(s.ctx, s.ahead, off); err != nil {
		s.ahead = s.ahead[:0]
		return err
	}
	copy(p, s.ahead)
	return nil
}

// fileSystem maps the names that SQLite opens to sources.
type fileSystem struct {
	last atomic.Int64
	at   sync.Map // name → *source
}

var sources fileSystem

func (f *fileSystem) register(s *source) (name string) {
	name = "/" + strconv.FormatInt(f.last.Add(1), 10)
	f.at.Store(name, s)
	return name
}

func (f *fileSystem) findSource(name string) (s *source, log bool) {
	name, log = strings.CutSuffix(name, "-wal")
	v, _ := f.at.Load(name)
	s, _ = v.(*source)
	return s, log
}

func (f *fileSystem) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	switch s, log := f.findSource(name); {
	case s == nil:
		return nil, flags, sqlite3.CANTOPEN
	case log:
		return walFile{readOnly{}, bytes.NewReader(s.wal)}, flags, nil
	default:
		return dbFile{readOnly{}, s}, flags, nil
	}
}

func (f *fileSystem) Access(name string, _ vfs.AccessFlag) (bool, error) {
	s, log := f.findSource(name)
	return s != nil && (!log || len(s.wal) > 0), nil
}

func (f *fileSystem) FullPathname(name string) (string, error) { return name, nil }
func (f *fileSystem) Delete(string, bool) error                { return sqlite3.IOERR_DELETE }

// readOnly rejects writes. It grants every lock, because no other connection uses the source.
type readOnly struct{}

func (readOnly) Close() error                                    { return nil }
func (readOnly) WriteAt([]byte, int64) (int, error)              { return 0, sqlite3.IOERR_WRITE }
func (readOnly) Truncate(int64) error                            { return sqlite3.IOERR_TRUNCATE }
func (readOnly) Sync(vfs.SyncFlag) error                         { return nil }
func (readOnly) Lock(vfs.LockLevel) error                        { return nil }
func (readOnly) Unlock(vfs.LockLevel) error                      { return nil }
func (readOnly) CheckReservedLock() (bool, error)                { return false, nil }
func (readOnly) SectorSize() int                                 { return 0 }
func (readOnly) DeviceCharacteristics() vfs.DeviceCharacteristic { return vfs.IOCAP_SUBPAGE_READ }

type dbFile struct {
	readOnly
	s *source
}

func (f dbFile) Size() (int64, error) { return f.s.size, nil }

func (f dbFile) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, min(int64(len(p)), f.s.size-off))
	if n > 0 {
		if err := f.s.readPage(p[:n], off); err != nil {
			f.s.err = cmp.Or(f.s.err, err)
			return 0, sqlite3.IOERR_READ
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

type walFile struct {
	readOnly
	*bytes.Reader
}

func (f walFile) Size() (int64, error) { return f.Reader.Size(), nil }
