package container

import (
	"github.com/goatnote-inc/robocache/internal/lru"
)

// Chunks keeps decompressed chunks of the files that share it, all together below a budget in
// bytes: a folder of hundreds of recordings, of which many are open, keeps no more of them than
// one.
type Chunks struct {
	kept   *lru.Cache[chunkKey, *Records]
	budget int64
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
