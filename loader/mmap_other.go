//go:build !unix

package loader

import "unsafe"

// mapMemory gives page-aligned memory of the Go heap: Go does not move it.
func mapMemory(size int) ([]byte, error) {
	m := make([]byte, size+pageSize)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) & (pageSize - 1)
	return m[skip : skip+size : skip+size], nil
}

func unmapMemory([]byte) {}
