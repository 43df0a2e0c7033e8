package container

import (
	"context"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/format/internal/lru"
)

// Chunks keeps decompressed chunks of the files that share it, all together below a budget in bytes: a folder of hundreds of recordings,
// of which many are open, keeps no more of them than one.
type Chunks struct {
	kept   *lru.Cache[chunkKey, *Records]
	budget int64
	ahead  atomic.Int64 // readers that have chunks read ahead
}

type chunkKey struct {
	file  *File
	chunk int
}

// NewChunks makes room for so many bytes; 0 = 64 MiB.
func NewChunks(budget int64) *Chunks {
	if budget <= 0 {
		budget = defaultBudget
	}
	c := &Chunks{kept: lru.New[chunkKey, *Records](budget), budget: budget}
	c.kept.Gone((*Records).Release)
	return c
}

// get gives a chunk of a file, loading it where it is not kept.
func (c *Chunks) get(ctx context.Context, f *File, chunk int, load func() (*Records, int64, error)) (*Records, error) {
	return c.kept.Get(ctx, chunkKey{f, chunk}, load)
}

func (c *Chunks) peek(f *File, chunk int) (*Records, bool) { return c.kept.Peek(chunkKey{f, chunk}) }

func (c *Chunks) drop(f *File, chunk int) { c.kept.Drop(chunkKey{f, chunk}) }

// forget lets go of a file that is closed.
func (c *Chunks) forget(f *File) { c.kept.Forget(func(k chunkKey) bool { return k.file == f }) }
