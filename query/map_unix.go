//go:build linux || darwin

package query

import (
	"os"
	"syscall"
)

// mapWholeFile maps a file into memory. The caller must call unmap.
func mapWholeFile(path string) (data []byte, unmap func() error, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return nil, func() error { return nil }, err
	}
	data, err = syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ,
		syscall.MAP_SHARED)
	return data, func() error { return syscall.Munmap(data) }, err
}
