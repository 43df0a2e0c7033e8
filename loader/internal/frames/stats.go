package frames

import (
	"sync/atomic"

	"github.com/goatnote-inc/robocache/cache"
)

// Counters are totals for statistics. Times are in nanoseconds.
type Counters struct {
	Plan, Decode, Convert, Copy, Fetch atomic.Int64

	Frames atomic.Int64 // slots that received a frame
	Unique atomic.Int64 // frames that were decoded
}

// Stats describes the memory and the cache of a store.
type Stats struct {
	// Limit, Bytes and Peak describe host memory of frames: budget, use and maximum use.
	Limit, Bytes, Peak int64
	// DeviceLimit, DeviceBytes and DevicePeak describe device memory.
	DeviceLimit, DeviceBytes, DevicePeak int64

	Resident int64 // frames
	Refused  int64 // frames not stored for lack of memory: each request decodes them again
	Cache    *CacheStats
}

// CacheStats describes a cache. Each requested frame is a hit or a miss.
type CacheStats struct {
	Where  string  `json:"where"`  // "ram" or the directory
	Format string  `json:"format"` // "yuv", "rgb" or "encoded"
	Hits   int64   `json:"hits"`
	Misses int64   `json:"misses"`
	Rate   float64 `json:"hit_rate"`
	Bytes  int64   `json:"bytes"`
	Budget int64   `json:"budget_bytes"`
	Full   bool    `json:"full,omitempty"`  // the last frame did not fit
	Error  string  `json:"error,omitempty"` // why writing stopped
}

// WithHitRate sets Rate from Hits and Misses and returns c.
func (c *CacheStats) WithHitRate() *CacheStats {
	if n := c.Hits + c.Misses; n > 0 {
		c.Rate = float64(c.Hits) / float64(n)
	}
	return c
}

// DirectoryStats returns the statistics of a cache directory.
func DirectoryStats(dir *cache.Dir, where, format string) *CacheStats {
	d := dir.Stats()
	return &CacheStats{
		Where:  where,
		Format: format,
		Hits:   d.Hits,
		Misses: d.Misses,
		Bytes:  d.Bytes,
		Budget: d.Budget,
		Full:   d.Full,
		Error:  d.Stopped,
	}
}

// Stats returns the statistics so far. where names the cache: "ram", "device", or its directory.
func (s *Store) Stats(where string) (out Stats) {
	format := "rgb"
	if s.planar {
		format = "yuv"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arena != nil {
		out.Bytes, _, out.Peak = s.arena.usageBytes()
		out.Limit, out.Resident, out.Refused = s.arena.limit, int64(len(s.frames)), s.counts.refused
	}
	if s.deviceArena != nil {
		out.DeviceBytes, _, out.DevicePeak = s.deviceArena.usageBytes()
		out.DeviceLimit = s.deviceArena.limit
	}
	if s.cacheLimit > 0 {
		out.Cache = &CacheStats{
			Where:  where,
			Format: format,
			Hits:   s.counts.hits,
			Misses: s.counts.misses,
			Bytes:  s.cachedBytes,
			Budget: s.cacheLimit,
			Full:   s.counts.full > 0,
		}
		out.Cache.WithHitRate()
	}
	if s.disk != nil {
		out.Cache = DirectoryStats(s.disk.dir, where, format)
		out.Cache.Hits, out.Cache.Misses = s.disk.hits.Load(), s.disk.misses.Load()
		out.Cache.WithHitRate()
	}
	return out
}
