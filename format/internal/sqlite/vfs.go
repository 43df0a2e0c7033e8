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

// vfsName is the file system that SQLite reads sources by.
const vfsName = "robocache"

func init() { vfs.Register(vfsName, &sources) }

// source is the files of one connection: the database and its log.
type source struct {
	ctx  context.Context // of the call that reads now
	file robocache.Ranged
	size int64 // of file, as far as it is read
	wal  []byte
	err  error // the first that reading met

	ahead []byte // of the file, from at on
	at    int64
	next  int64 // where the last read ended
}

// readAhead is how much is read at once of a file whose pages are read one behind the other.
const readAhead = 64 << 10

// read gives bytes inside the file.
func (s *source) read(p []byte, off int64) error {
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

// fileSystem knows sources by the names that SQLite opens them by.
type fileSystem struct {
	last atomic.Int64
	at   sync.Map // name → *source
}

var sources fileSystem

func (f *fileSystem) add(s *source) (name string) {
	name = "/" + strconv.FormatInt(f.last.Add(1), 10)
	f.at.Store(name, s)
	return name
}

func (f *fileSystem) find(name string) (s *source, log bool) {
	name, log = strings.CutSuffix(name, "-wal")
	v, _ := f.at.Load(name)
	s, _ = v.(*source)
	return s, log
}

func (f *fileSystem) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	switch s, log := f.find(name); {
	case s == nil:
		return nil, flags, sqlite3.CANTOPEN
	case log:
		return walFile{readOnly{}, bytes.NewReader(s.wal)}, flags, nil
	default:
		return dbFile{readOnly{}, s}, flags, nil
	}
}

func (f *fileSystem) Access(name string, _ vfs.AccessFlag) (bool, error) {
	s, log := f.find(name)
	return s != nil && (!log || len(s.wal) > 0), nil
}

func (f *fileSystem) FullPathname(name string) (string, error) { return name, nil }
func (f *fileSystem) Delete(string, bool) error                { return sqlite3.IOERR_DELETE }

// readOnly refuses to write. Locks are granted: nobody else has the source.
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
		if err := f.s.read(p[:n], off); err != nil {
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
