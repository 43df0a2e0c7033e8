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

const (
	populateRead    = 22                 // MADV_POPULATE_READ, Linux 5.14
	errMemoryFailed = syscall.Errno(133) // EHWPOISON
)

var (
	noPopulate atomic.Bool // set when the kernel rejects populateRead
	page       = uintptr(os.Getpagesize())
)

// populatePages reads the pages of b into memory. It uses a system call, which Go's scheduler can
// observe, because a page fault would block a processor. It returns an error if b cannot be read:
// the file shrank, or the disk failed.
func populatePages(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	to := (from + uintptr(len(b)) + page - 1) &^ (page - 1)
	var pages [256]byte // set by mincore: bit 0 is 1 for a page in memory
	isAbsent := func(v byte) bool { return v&1 == 0 }
	for p := from &^ (page - 1); p < to; p += uintptr(len(pages)) * page {
		n := min(to-p, uintptr(len(pages))*page)
		_, _, e := syscall.RawSyscall(syscall.SYS_MINCORE, p, n, uintptr(unsafe.Pointer(&pages[0])))
		if e != 0 || slices.ContainsFunc(pages[:n/page], isAbsent) {
			return readRange(p, to)
		}
	}
	return nil
}

// dropPages removes the pages of a mapping from this process's memory. They stay in the page cache.
func dropPages(m []byte) { _ = syscall.Madvise(m, syscall.MADV_DONTNEED) }

// readRange requests the whole range at once and then waits for it. Reading 460 kB in random order
// page by page took three times as long.
func readRange(from, to uintptr) error {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_WILLNEED)
	for try := 0; try < 10 && !noPopulate.Load(); try++ {
		_, _, e := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, populateRead)
		switch e {
		case 0:
			return nil
		case syscall.EINTR, syscall.EAGAIN:
			continue
		case syscall.EFAULT, syscall.EIO, errMemoryFailed:
			return e
		case syscall.EINVAL:
			noPopulate.Store(true)
		}
		return nil // a page fault will read the page
	}
	return nil
}

// dataSeeker returns a function that returns the first offset with data at or after off, rounded
// down to a multiple of align. If there is no more data, the function returns the end of the file.
// If the system cannot find holes, the function returns off.
func dataSeeker(f *os.File) func(int64) int64 {
	return func(off int64) int64 {
		const seekData = 3 // SEEK_DATA
		at, err := f.Seek(off, seekData)
		if errors.Is(err, syscall.ENXIO) { // no data at or after off
			end, err := f.Seek(0, io.SeekEnd)
			if err != nil {
				return off
			}
			return max(off, alignUp(end))
		}
		if err != nil {
			return off
		}
		return max(off, at&^(align-1))
	}
}
