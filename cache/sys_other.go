//go:build !linux && !darwin

package cache

import "os"

const (
	supported = false
	plainOnly = 0
)

func tryLock(*os.File) (bool, error)                   { return false, errNone() }
func unlock(*os.File)                                  {}
func mapFile(*os.File, int64) ([]byte, error)          { return nil, errNone() }
func unmap([]byte)                                     {}
func diskFree(*os.File) (free, total int64, err error) { return 0, 0, errNone() }
func onDisk(info os.FileInfo) int64                    { return info.Size() }
func fileSizeLimit() int64                             { return 1 << 62 }
func resident([]byte) error                            { return nil }

func nextData(
	*os.File,
) func(int64) int64 {
	return func(off int64) int64 { return off }
}
func letGo([]byte) {}
