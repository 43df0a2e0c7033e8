package bench

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
)

// eachFile opens file after file.
func eachFile(files []string, do func(f *os.File) error) error {
	for _, p := range files {
		f, err := os.Open(p)
		if err == nil {
			err = do(f)
			f.Close()
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
	}
	return nil
}

// warm reads the files once, so that the page cache holds what it can.
func warm(files []string) error {
	return eachFile(files, func(f *os.File) error { _, err := io.Copy(io.Discard, f); return err })
}

// evict asks the kernel to drop the files' pages. Pages that another process maps stay: resident says what was achieved.
func evict(files []string) error {
	return eachFile(files, func(f *os.File) error {
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// resident is the share of the files' pages that the page cache holds.
func resident(files []string) (float64, bool) {
	have, all, page := 0, 0, os.Getpagesize()
	err := eachFile(files, func(f *os.File) error {
		st, err := f.Stat()
		if err != nil || st.Size() == 0 {
			return err
		}
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer unix.Munmap(m)
		vec := make([]byte, (len(m)+page-1)/page)
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0]))); errno != 0 {
			return errno
		}
		for _, v := range vec {
			have += int(v & 1)
		}
		all += len(vec)
		return nil
	})
	return float64(have) / float64(max(all, 1)), err == nil && all > 0
}
