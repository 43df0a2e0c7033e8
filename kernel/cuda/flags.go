package cuda

import (
	"sync"
	"unsafe"
)

// flags are words in host memory that kernels write through a mapping: the result of a check, such as the first bad index. They are handed
// out a line at a time, so that checks may run beside each other.
type flags struct {
	host   unsafe.Pointer // flagLines lines of 64 bytes
	device uintptr        // the same memory, for kernels

	mu   sync.Mutex
	free []int
	more *sync.Cond
}

const flagLines = 64

// line is one line of flags: eight words.
type line struct {
	of    *flags
	index int
	words *[8]int64
	addr  uintptr // for kernels
}

func newFlags(host unsafe.Pointer, device uintptr) *flags {
	f := &flags{host: host, device: device}
	f.more = sync.NewCond(&f.mu)
	for i := range flagLines {
		f.free = append(f.free, i)
	}
	return f
}

// take gives a line, each word set to v. It waits while all are in use.
func (f *flags) take(v int64) *line {
	f.mu.Lock()
	for len(f.free) == 0 {
		f.more.Wait()
	}
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.mu.Unlock()
	l := &line{of: f, index: i, words: (*[8]int64)(unsafe.Add(f.host, i*64)), addr: f.device + uintptr(i*64)}
	for w := range l.words {
		l.words[w] = v
	}
	return l
}

// put gives the line back.
func (l *line) put() {
	l.of.mu.Lock()
	l.of.free = append(l.of.free, l.index)
	l.of.mu.Unlock()
	l.of.more.Signal()
}
