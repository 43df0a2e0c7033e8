package cache

import "os"

// resident leaves reading to page faults: there is no call that reports a failing one.
func resident([]byte) error { return nil }

// letGo does nothing: the system takes pages of files when it wants them.
func letGo([]byte) {}

func nextData(*os.File) func(int64) int64 { return func(off int64) int64 { return off } }
