package container

import (
	"github.com/goatnote-inc/robocache/internal/lru"
)

// Chunks is a cache of decompressed chunks for all files that share it. All chunks together stay
// within one budget in bytes, so a folder of hundreds of open recordings needs no more memory than
// one recording.
type Chunks struct {
	records *lru.Cache[chunkKey, *Records]
	budget  int64
}

type chunkKey struct {
	file  *File
	chunk int
}

// NewChunks returns a cache with a budget in bytes. 0 means 64 MiB.
func NewChunks(budget int64) *Chunks {
	if budget <= 0 {
		budget = defaultBudget
	}
	c := &Chunks{records: lru.New[chunkKey, *Records](budget), budget: budget}
	c.records.Gone((*Records).Release)
	return c
}
