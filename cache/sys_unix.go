//go:build linux || darwin

package cache

import (
	"errors"
	"os"
	"syscall"
)

const supported = true

// plainOnly makes an open fail for a link and not block for a FIFO.
const plainOnly = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// tryLock takes the exclusive lock of an open file and reports whether it succeeded. The system
// releases the lock when the last process with this open file ends, for any reason.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}

func unlockFile(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

func mapFile(f *os.File, size int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

func unmapFile(m []byte) { _ = syscall.Munmap(m) }

// freeBytes returns the space that an ordinary user may still allocate, and the size of the file
// system.
func freeBytes(f *os.File) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &s); err != nil {
		return 0, 0, err
	}
	unit := int64(s.Bsize) //nolint:unconvert // int64 here, uint32 on darwin
	return saturatingMul(s.Bavail, unit), saturatingMul(s.Blocks, unit), nil
}

func saturatingMul(n uint64, unit int64) int64 {
	if unit <= 0 || n > uint64(1<<62)/uint64(unit) {
		return 1 << 62
	}
	return int64(n) * unit
}

// allocatedBytes returns the disk space of a file. It is less than the file's size if the file has
// holes.
func allocatedBytes(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// fileSizeLimit returns RLIMIT_FSIZE. A write beyond it would raise SIGXFSZ.
func fileSizeLimit() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r) != nil || r.Cur > 1<<62 {
		return 1 << 62
	}
	return int64(r.Cur)
}
