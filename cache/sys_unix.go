//go:build linux || darwin

package cache

import (
	"errors"
	"os"
	"syscall"
)

const supported = true

// plainOnly keeps an open from following a link or waiting for the other end of a FIFO.
const plainOnly = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// tryLock takes the exclusive lock of an open file, if nobody else has it. The system lets go of it
// when the last process that has this opening of the file ends, however it ends.
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

func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

func mapFile(f *os.File, size int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

func unmap(m []byte) { _ = syscall.Munmap(m) }

// diskFree gives what an ordinary user may still write, and the size of the file system.
func diskFree(f *os.File) (free, total int64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &s); err != nil {
		return 0, 0, err
	}
	unit := int64(s.Bsize) //nolint:unconvert // int64 here, uint32 on darwin
	return satMul(s.Bavail, unit), satMul(s.Blocks, unit), nil
}

func satMul(n uint64, unit int64) int64 {
	if unit <= 0 || n > uint64(1<<62)/uint64(unit) {
		return 1 << 62
	}
	return int64(n) * unit
}

// onDisk is what a file takes, in bytes: less than its size where it has holes.
func onDisk(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}

// fileSizeLimit is RLIMIT_FSIZE: a write beyond it would raise SIGXFSZ.
func fileSizeLimit() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r) != nil || r.Cur > 1<<62 {
		return 1 << 62
	}
	return int64(r.Cur)
}
