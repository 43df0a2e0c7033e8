//go:build !linux && !darwin

package cache

import "os"

const (
	supported = false
	plainOnly = 0
)

func tryLock(*os.File) (bool, error)                    { return false, errUnsupported() }
func unlockFile(*os.File)                               {}
func mapFile(*os.File, int64) ([]byte, error)           { return nil, errUnsupported() }
func unmapFile([]byte)                                  {}
func freeBytes(*os.File) (free, total int64, err error) { return 0, 0, errUnsupported() }
func allocatedBytes(info os.FileInfo) int64             { return info.Size() }
func fileSizeLimit() int64                              { return 1 << 62 }
func populatePages([]byte) error                        { return nil }

// dataSeeker returns a function that returns off. Holes are not searched for on this system.
func dataSeeker(*os.File) func(int64) int64 { return func(off int64) int64 { return off } }

func dropPages([]byte) {}
