//go:build unix

package buffers

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// hugePages is Linux's MADV_HUGEPAGE. It reduces page faults while frames are written. Errors are
// ignored.
const hugePages = 14

// MapMemory returns zeroed pages outside the Go heap. The caller must call UnmapMemory.
func MapMemory(size int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil && size >= HugePage && runtime.GOOS == "linux" {
		_ = unix.Madvise(m, hugePages)
	}
	return m, err
}

// UnmapMemory unmaps memory that MapMemory returned.
func UnmapMemory(m []byte) { _ = unix.Munmap(m) }
