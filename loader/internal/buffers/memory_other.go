//go:build !unix

package buffers

import "unsafe"

// MapMemory returns page-aligned memory of the Go heap, which Go does not move.
func MapMemory(size int) ([]byte, error) {
	m := make([]byte, size+PageSize)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) & (PageSize - 1)
	return m[skip : skip+size : skip+size], nil
}

// UnmapMemory does nothing: the garbage collector frees the memory.
func UnmapMemory([]byte) {}
