//go:build !unix

package buffers

import "unsafe"

// MapMemory gives page-aligned memory of the Go heap: Go does not move it.
func MapMemory(size int) ([]byte, error) {
	m := make([]byte, size+PageSize)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(m)))) & (PageSize - 1)
	return m[skip : skip+size : skip+size], nil
}

// UnmapMemory takes it back.
func UnmapMemory([]byte) {}
