package store

import (
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// folder is a folder's descriptor, below which files are opened by one call: os.Root opens each folder on the way, and an os.File costs two
// more calls to learn that the poller does not want it. Of files that are opened once and read in a few pieces that is most of the cost.
type folder struct {
	f       *os.File
	conn    syscall.RawConn // holds f open during a call
	refused atomic.Bool     // the system does not know or allow the call
}

func openFolder(root *os.Root) *folder {
	f, err := root.Open(".")
	if err != nil {
		return nil // os.Root does it all
	}
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil
	}
	return &folder{f: f, conn: conn}
}

func (d *folder) close() {
	if d != nil {
		d.f.Close()
	}
}

// open opens a regular file that lies below the folder; nil where that is not possible or not so: os.Root says why.
func (d *folder) open(name string) (in inode, size, mtime int64) {
	if d == nil || d.refused.Load() {
		return nil, 0, 0
	}
	_ = d.conn.Control(func(at uintptr) { in, size, mtime = d.openAt(int(at), name) })
	return in, size, mtime
}

func (d *folder) openAt(at int, name string) (in inode, size, mtime int64) {
	// Opening a device can have effects (a tape rewinds), and a FIFO waits: look before opening. The look may follow a link that leads out;
	// the opening does not.
	var st unix.Stat_t
	if unix.Fstatat(at, name, &st, 0) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, 0, 0
	}
	// O_NONBLOCK: a FIFO that took the name's place since does not stop us either.
	fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		if err == unix.ENOSYS || err == unix.EPERM { // before Linux 5.6; in a sandbox that lists what it allows
			d.refused.Store(true)
		}
		return nil, 0, 0
	}
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, 0, 0
	}
	opened := &descriptor{fd: fd, name: name}
	opened.forgotten = runtime.AddCleanup(opened, func(fd int) { _ = unix.Close(fd) }, fd)
	return opened, st.Size, st.Mtim.Nano()
}

// descriptor is an inode by its number alone. One that nobody closed is closed when nobody can reach it, as an os.File is.
type descriptor struct {
	name      string
	forgotten runtime.Cleanup

	mu sync.RWMutex // Close waits for reads: a number may be another file's the moment after
	fd int          // -1: closed
}

func (d *descriptor) failed(op string, err error) error {
	return &fs.PathError{Op: op, Path: d.name, Err: err}
}

func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.fd < 0 {
		return 0, d.failed("read", fs.ErrClosed)
	}
	n := 0
	for n < len(p) {
		k, err := unix.Pread(d.fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, d.failed("read", err)
		case k == 0:
			return n, io.EOF
		default:
			n += k
		}
	}
	return n, nil
}

func (d *descriptor) look() (size, mtime int64, err error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.fd < 0 {
		return 0, 0, d.failed("stat", fs.ErrClosed)
	}
	var st unix.Stat_t
	for {
		err := unix.Fstat(d.fd, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, 0, d.failed("stat", err)
		}
		return st.Size, st.Mtim.Nano(), nil
	}
}

func (d *descriptor) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return d.failed("close", fs.ErrClosed)
	}
	fd := d.fd
	d.fd = -1
	d.forgotten.Stop() // d is reachable up to the unlock: it has not run
	if err := unix.Close(fd); err != nil && err != unix.EINTR {
		return d.failed("close", err)
	}
	return nil
}
