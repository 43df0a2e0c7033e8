package lease

import (
	"sync"
	"testing"
)

// TestClass checks that every size is in a class that holds it, that the size of a class is in that
// class, and that at most a quarter is unused.
func TestClass(t *testing.T) {
	for _, n := range []int{
		0,
		1,
		4096,
		4097,
		5120,
		5121,
		6144,
		8191,
		8192,
		8193,
		21 << 10,
		120_128,
		153_728,
		1 << 20,
		1<<20 + 1,
		1<<22 - 1,
		1 << 22,
	} {
		at, size := sizeClass(n)
		if size < n || n > 4<<10 && size > n+n/4+1 {
			t.Errorf("%d bytes lie in %d", n, size)
		}
		if again, _ := sizeClass(size); again != at || at < 0 || at >= len(pools) {
			t.Errorf(
				"%d bytes: class %d of %d, of its own size %d class %d",
				n,
				at,
				len(pools),
				size,
				again,
			)
		}
	}
}

// TestApart tests lease.N1 with concurrent goroutines.
func TestApart(t *testing.T) {
	for range 8 {
		l := Get()
		var wg sync.WaitGroup
		all := make([][]byte, 32)
		for i := range all {
			wg.Go(func() {
				b := l.Room(int64(1 + i*7001))
				for k := range b {
					b[k] = byte(i)
				}
				all[i] = b
			})
		}
		wg.Wait()
		for i, b := range all {
			if len(b) != 1+i*7001 {
				t.Fatalf("%d bytes", len(b))
			}
			for _, v := range b {
				if v != byte(i) {
					t.Fatal("two rooms share memory")
				}
			}
		}
		l.Done()
	}
}

// TestNoGarbage tests lease.N3: after the first lease, leases of the same sizes allocate nothing.
func TestNoGarbage(t *testing.T) {
	n := testing.AllocsPerRun(200, func() {
		l := Get()
		for n := range int64(20) {
			l.Room(n << 13)
		}
		l.Done()
	})
	if n > 20 { // 40 without pools; the race detector empties pools at random
		t.Fatalf("%v allocations a lease", n)
	}
}
