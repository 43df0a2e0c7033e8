package buffers

import "github.com/goatnote-inc/robocache/loader/internal/frames"

// Allocator is where the memory of batches comes from: page-locked, say, so that a GPU copies from it. Its calls may come from many
// goroutines, also after the loader's Close, when the last batch is released. Alloc gives n bytes, page aligned and outside the Go heap; what it lacks is
// an error of its own class. Free takes back what it gave.
type Allocator = frames.Memory
