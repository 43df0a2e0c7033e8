//go:build linux && (amd64 || arm64 || riscv64 || loong64 || ppc64le || s390x)

package bench

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

const adviseDontNeed = 4 // POSIX_FADV_DONTNEED

// evict asks the kernel to drop the files' pages. Pages that another process maps stay: resident says what was achieved.
func evict(files []string) error {
	for _, p := range files {
		f, err := os.Open(p)
		if err != nil {
			return robocache.At(err, robocache.Where{"file": p})
		}
		_ = f.Sync() // dirty pages cannot be dropped; a read-only file system refuses
		_, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, adviseDontNeed, 0, 0)
		f.Close()
		if errno != 0 {
			return robocache.At(errno, robocache.Where{"file": p})
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
		m, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
		f.Close()
		if err != nil {
			return 0, false
		}
		vec := make([]byte, (len(m)+page-1)/page)
		_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&vec[0])))
		_ = syscall.Munmap(m)
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
