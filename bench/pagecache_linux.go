package bench

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
)

// evict asks the kernel to drop the files' pages. Pages that another process maps stay: resident says what was achieved.
func evict(files []string) error {
	for _, p := range files {
		f, err := os.Open(p)
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		f.Close()
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
	}
	return nil
}

// resident is the share of the files' pages that the page cache holds.
func resident(files []string) (float64, bool) {
	page := os.Getpagesize()
	have, all := 0, 0
	for _, p := range files {
		f, err := os.Open(p)
		if err != nil {
			return 0, false
		}
		st, err := f.Stat()
		if err != nil || st.Size() == 0 {
			f.Close()
			continue
		}
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		f.Close()
		if err != nil {
			return 0, false
		}
		vec := make([]byte, (len(m)+page-1)/page)
		_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0])))
		_ = unix.Munmap(m)
		if errno != 0 {
			return 0, false
		}
		for _, v := range vec {
			have += int(v & 1)
		}
		all += len(vec)
	}
	if all == 0 {
		return 0, false
	}
	return float64(have) / float64(all), true
}
