// Package lease gives memory for frames, to be given back and used again.
//
// # Contract
//
//	N1  Room gives memory that nobody else has until Done; its content is anything.
//	N2  Room may be called from many goroutines, Done once, after all of them.
//	N3  A buffer is at most a quarter larger than what was asked for; one above 4 MiB is not kept for the next lease.
package lease

import (
	"math/bits"
	"sync"
)

const (
	smallest = 12 // log2 of the least size
	largest  = 22 // of the largest that is kept
)

// pools keep buffers in sizes that grow by a quarter: in one pool of all sizes a large image would
// find the buffer of a small one, and throw it away.
var pools [4 * (largest - smallest + 1)]sync.Pool

// class is the smallest size that holds n bytes, and where its pool stands.
func class(n int) (at, size int) {
	n = max(n, 1<<smallest+1)
	e := bits.Len(uint(n-1)) - 1 // 2^e < n ≤ 2^(e+1)
	quarter := 1 << (e - 2)
	q := (n - 1<<e + quarter - 1) / quarter
	return 4*(e-smallest) + q - 1, 1<<e + q*quarter
}

// Lease is the memory of one user. Get makes one.
type Lease struct {
	mu      sync.Mutex
	buffers []*[]byte
	bytes   int64
}

var leases = sync.Pool{New: func() any { return new(Lease) }}

// Get gives an empty lease.
func Get() *Lease { return leases.Get().(*Lease) }

// Room gives memory of n bytes.
func (l *Lease) Room(n int64) []byte {
	if n > 1<<largest {
		l.mu.Lock()
		l.bytes += n
		l.mu.Unlock()
		return make([]byte, n)
	}
	at, size := class(int(n))
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

// Bytes is how much memory the lease holds.
func (l *Lease) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Done gives all of it back, and the lease itself.
func (l *Lease) Done() {
	for i, b := range l.buffers {
		at, _ := class(len(*b))
		pools[at].Put(b)
		l.buffers[i] = nil
	}
	l.buffers, l.bytes = l.buffers[:0], 0
	leases.Put(l)
}
