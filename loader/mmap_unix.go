//go:build unix

package loader

import "syscall"

// mapMemory gives zeroed pages outside the Go heap.
func mapMemory(size int) ([]byte, error) {
	m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err == nil && size >= hugePage {
		adviseHuge(m)
	}
	return m, err
}

func unmapMemory(m []byte) { _ = syscall.Munmap(m) }
