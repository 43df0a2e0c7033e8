package verbs

import (
	"context"

	"github.com/goatnote-inc/robocache/cache"
)

// CacheListRequest holds the options of CacheList.
type CacheListRequest struct {
	// Folder is the directory of the cache.
	Folder string `json:"-" arg:"DIR"`
}

// CacheList reports the shards, entries and bytes of a cache on disk.
func CacheList(_ context.Context, r *CacheListRequest, _ Observer) (*cache.Listing, error) {
	return cache.List(r.Folder)
}

// CachePruneRequest holds the options of CachePrune.
type CachePruneRequest struct {
	// Folder is the directory of the cache.
	Folder string `json:"-" arg:"DIR"`
	// Budget is the number of bytes that may stay, such as 10GiB.
	Budget string `json:"budget"`
}

// CachePrune removes shards of a cache, the least recently used first, down to a budget.
func CachePrune(_ context.Context, r *CachePruneRequest, _ Observer) (*cache.Pruned, error) {
	budget, err := ParseBytes(r.Budget)
	if err != nil {
		return nil, err
	}
	return cache.Prune(r.Folder, budget)
}

// CacheVerifyRequest holds the options of CacheVerify.
type CacheVerifyRequest struct {
	// Folder is the directory of the cache.
	Folder string `json:"-" arg:"DIR"`
	// Drop removes shards that are damaged.
	Drop bool `json:"drop"`
}

// Verification is the result of CacheVerify.
type Verification struct{ *cache.Verification }

// HasFindings reports whether the cache is damaged.
func (v *Verification) HasFindings() bool { return len(v.Damaged) > 0 }

// CacheVerify reads every entry of a cache, and compares its checksum.
func CacheVerify(
	ctx context.Context, r *CacheVerifyRequest, o Observer,
) (*Verification, error) {
	opt := cache.VerifyOptions{Drop: r.Drop, Progress: o.countIn("bytes")}
	v, err := cache.Verify(ctx, r.Folder, opt)
	if err != nil {
		return nil, err
	}
	return &Verification{v}, nil
}
