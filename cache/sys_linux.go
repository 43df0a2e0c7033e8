package cache

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const populateRead = 22 // MADV_POPULATE_READ, Linux 5.14

var (
	noPopulate atomic.Bool // the kernel does not know it
	page       = uintptr(os.Getpagesize())
)

// resident has the pages of b in memory when it returns, where the system allows: what lies on disk
// is read in a system call, which Go's scheduler sees, and not in a page fault, which it does not.
// An error says that b cannot be read: the file shrank, or the disk failed.
func resident(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	to := (from + uintptr(len(b)) + page - 1) &^ (page - 1)
	var vec [256]byte
	for p := from &^ (page - 1); p < to; p += uintptr(len(vec)) * page {
		n := min(to-p, uintptr(len(vec))*page)
		_, _, e := syscall.RawSyscall(syscall.SYS_MINCORE, p, n, uintptr(unsafe.Pointer(&vec[0])))
		if e != 0 || slices.ContainsFunc(vec[:n/page], func(v byte) bool { return v&1 == 0 }) {
			return readIn(p, to)
		}
	}
	return nil
}

// letGo takes the pages of a mapping out of this process's memory; they stay in the page cache.
func letGo(m []byte) { _ = syscall.Madvise(m, syscall.MADV_DONTNEED) }

// readIn asks for all of a range at once (page by page a random 460 kB took three times as long),
// then waits for it.
func readIn(from, to uintptr) error {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_WILLNEED)
	for try := 0; try < 10 && !noPopulate.Load(); try++ {
		_, _, e := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, populateRead)
		switch e {
		case 0:
			return nil
		case syscall.EINTR, syscall.EAGAIN:
			continue
		case syscall.EFAULT, syscall.EIO, syscall.Errno(133): // 133: EHWPOISON
			return e
		case syscall.EINVAL:
			noPopulate.Store(true)
		}
		return nil // a page fault reads it
	}
	return nil
}

// nextData skips a hole of a file.
func nextData(f *os.File) func(int64) int64 {
	return func(off int64) int64 {
		const seekData = 3
		at, err := f.Seek(off, seekData)
		if errors.Is(err, syscall.ENXIO) {
			end, err := f.Seek(0, io.SeekEnd)
			if err != nil {
				return off
			}
			return max(off, roundUp(end))
		}
		if err != nil {
			return off
		}
		return max(off, at&^(align-1))
	}
}
