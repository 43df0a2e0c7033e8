package loader

import (
	"errors"
	"io"
	"sync"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// counting is an allocator that records the memory in use.
type counting struct {
	mu    sync.Mutex
	live  map[*byte]int
	total int
	full  bool
}

func (c *counting) Alloc(n int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return nil, &robocache.Error{
			Class: robocache.ErrResourceLimit,
			Op:    "test",
			Msg:   "nothing left to lock",
		}
	}
	m, err := buffers.MapMemory(n)
	c.live[unsafe.SliceData(m)] = n
	c.total++
	return m, err
}

func (c *counting) Free(m []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live[unsafe.SliceData(m)] != len(m) {
		panic("memory that was not given")
	}
	delete(c.live, unsafe.SliceData(m))
	buffers.UnmapMemory(m)
}

// TestAllocator checks that all tensors are memory of the allocator, that all of it is freed, and
// that its errors are returned.
func TestAllocator(t *testing.T) {
	f := newFake(lengthsFor(2, 6, 20, 40)...)
	c := &counting{live: map[*byte]int{}}
	l := mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 8, Shuffle: Global},
			Runtime: options.Runtime{Threads: 4, Allocator: c},
			Windows: options.Windows{Keys: []string{"cam", "observation.state"}},
		},
	)
	var kept *layout.Batch
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		checkBatch(t, f, l.config, b)
		if kept == nil {
			kept = b
			continue
		}
		b.Release()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if c.total == 0 || len(c.live) == 0 {
		t.Errorf("%d allocations, %d live while a batch is kept", c.total, len(c.live))
	}
	kept.Release()
	if len(c.live) != 0 {
		t.Errorf("%d allocations never came back", len(c.live))
	}
	c.full = true
	l = mustLoader(
		t,
		f,
		options.Config{
			Order:   options.Order{BatchSize: 8},
			Windows: options.Windows{Keys: []string{"cam"}},
			Runtime: options.Runtime{Allocator: c},
		},
	)
	if _, err := l.Next(bg); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("an allocator without memory: %v", err)
	}
}
