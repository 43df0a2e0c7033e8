//go:build unix

package frames

import "syscall"

// MapMemory gives zeroed pages outside the Go heap.
func MapMemory(size int) ([]byte, error) {
	m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err == nil && size >= HugePage {
		adviseHuge(m)
	}
	return m, err
}

// UnmapMemory takes it back.
func UnmapMemory(m []byte) { _ = syscall.Munmap(m) }
