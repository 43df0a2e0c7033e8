package frames

import "syscall"

// adviseHuge asks for huge pages, for fewer page faults while frames are written. Best effort.
func adviseHuge(m []byte) { _ = syscall.Madvise(m, syscall.MADV_HUGEPAGE) }
