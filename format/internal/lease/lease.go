// Package lease provides reusable memory for frames.
//
// # Contract
//
//	lease.N1  Room returns memory that is not shared with any other lease until Done. Its content is
//	          undefined.
//	lease.N2  Room may be called concurrently. Done must be called once, after all calls of Room.
//	lease.N3  A buffer is at most a quarter larger than requested. A buffer above 4 MiB is not reused.
//
// Intuitively, a Lease is an arena: Room allocates from pools, and Done returns everything at once.
package lease

import (
	"math/bits"
	"sync"
)

const (
	smallest = 12 // log2 of the smallest size
	largest  = 22 // log2 of the largest size that is reused
)

// pools hold buffers by size class. Sizes grow by a quarter. With one pool for all sizes, a large
// image would often get a buffer of a small one and discard it.
var pools [4 * (largest - smallest + 1)]sync.Pool

// sizeClass returns the smallest class that holds n bytes: its position in pools, and its size.
func sizeClass(n int) (at, size int) {
	n = max(n, 1<<smallest+1)
	e := bits.Len(uint(n-1)) - 1 // 2^e < n ≤ 2^(e+1)
	quarter := 1 << (e - 2)
	q := (n - 1<<e + quarter - 1) / quarter
	return 4*(e-smallest) + q - 1, 1<<e + q*quarter
}

// Lease is the memory of one user. Use Get to create one.
type Lease struct {
	mu      sync.Mutex
	buffers []*[]byte
	bytes   int64
}

var leases = sync.Pool{New: func() any { return new(Lease) }}

// Get returns an empty lease.
func Get() *Lease { return leases.Get().(*Lease) }

// Room allocates n bytes.
func (l *Lease) Room(n int64) []byte {
	if n > 1<<largest {
		l.mu.Lock()
		l.bytes += n
		l.mu.Unlock()
		return make([]byte, n)
	}
	at, size := sizeClass(int(n))
	b, ok := pools[at].Get().(*[]byte)
	if !ok {
		m := make([]byte, size)
		b = &m
	}
	l.mu.Lock()
	l.buffers = append(l.buffers, b)
	l.bytes += int64(size)
	l.mu.Unlock()
	return (*b)[:n]
}

// Bytes returns how much memory the lease holds.
func (l *Lease) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Done releases all memory of the lease, and the lease itself.
func (l *Lease) Done() {
	for i, b := range l.buffers {
		at, _ := sizeClass(len(*b))
		pools[at].Put(b)
		l.buffers[i] = nil
	}
	l.buffers, l.bytes = l.buffers[:0], 0
	leases.Put(l)
}
