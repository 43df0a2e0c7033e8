package buffers

import "github.com/goatnote-inc/robocache/loader/internal/frames"

// Allocator is where the memory of batches comes from: page-locked, say, so that a GPU copies from it. Its calls may come from many
// goroutines, also after the loader's Close, when the last batch is released.
type Allocator interface {
	// Alloc gives n bytes, page aligned and outside the Go heap. What it lacks is an error of its own class.
	Alloc(n int) ([]byte, error)
	// Free takes back what Alloc gave.
	Free(m []byte)
}

// mappings are anonymous ones of the system.
type mappings struct{}

func (mappings) Alloc(n int) ([]byte, error) { return frames.MapMemory(n) }
func (mappings) Free(m []byte)               { frames.UnmapMemory(m) }
