package pipeline

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/store"
)

// openCaches splits the memory budget, and makes the pool's and the cache's room.
//
// An eighth of memory_budget is for idle decoders, one for the tables and indexes of the datasets, a sixteenth for mapped pages of a
// cache directory, a thirty-second for timestamps. Half of the whole is for kept frames where there are any (of a RAM cache beside a pool, a
// quarter more), and half of what they leave for batches under construction; without them, five eighths of the whole.
func (a *Assembler) openCaches(ctx context.Context) error {
	cfg := &a.Config
	total := int64(cfg.MemoryBudget)
	ram := cfg.Cache == options.CacheInRAM
	pool := cfg.Shuffle == order.Pool && a.HasVideo()
	var poolBytes, room int64
	if pool {
		poolBytes = int64(cfg.PoolSize)
	}
	if ram {
		if room = int64(cfg.CacheBudget); room == 0 {
			room = total / 2
			if pool {
				room = total / 4
			}
		}
	}
	kept := poolBytes + room
	if kept > total/8*7 {
		return robocache.Misuse("loader", nil, "pool_size and cache_budget leave nothing of memory_budget for batches").
			Expected("at most "+layout.FormatMiB(total/8*7)+" together", layout.FormatMiB(kept)).
			WithHint("raise memory_budget")
	}
	a.Budget = total / 8 * 5
	if kept > 0 {
		a.Budget = (total - kept) / 2
	}
	own := frames.Config{KeptBytes: kept, CacheBytes: room, KeepPlanes: a.KeepsPlanes(), Warn: a.Report.Warn}
	if cfg.HasCacheDirectory() {
		var err error
		if own.Dir, err = a.openDir(ctx); err != nil {
			return err
		}
	}
	reads := false
	for _, src := range a.Sources {
		reads = reads || src.IsRemote(ctx)
	}
	if reads {
		a.readWorkers = cmp.Or(cfg.IOThreads, defaultReads)
	}
	if reads || a.DeviceWorkers > 0 {
		own.Cores, own.ReadAheadBytes = cfg.Threads, max(a.Budget/8, 1<<20)
	}
	if a.FrameDevice != nil && (kept > 0 || cfg.Cache == options.CacheOnDevice) {
		own.DeviceBytes, own.DeviceMemory = cmp.Or(int64(cfg.DeviceMemory), kept), a.FrameDevice
	}
	if cfg.Cache == options.CacheOnDevice {
		own.CacheBytes = own.DeviceBytes // residents of a pool that it does not take lie on the host
	}
	a.Frames = frames.New(own)
	return nil
}

// defaultReads is how many reads are in flight where nothing is said: at 5 ms a request, some six thousand a second.
const defaultReads = 32

// openDir makes the cache directory one of decoded frames, or, and then gives nil, of the bytes that are read of remote files.
func (a *Assembler) openDir(ctx context.Context) (*cache.Dir, error) {
	cfg := &a.Config
	dir, err := a.CacheFolder.Open()
	if err != nil {
		return nil, err
	}
	encoded := cfg.CacheFormat == options.CacheEncoded
	for _, src := range a.Sources {
		encoded = encoded || cfg.CachesEncoded() && src.IsRemote(ctx)
	}
	if !encoded {
		return dir, nil
	}
	blocks := cache.Blocks{Dir: dir}
	for _, src := range a.Sources {
		l, ok := src.Files.(*frames.Library)
		if !ok {
			continue
		}
		uri := src.Dataset.Info().URI
		l.Videos.Wrap(func(path string, r robocache.Ranged) robocache.Ranged { // of other stores: videos beside a dataset
			return store.CachedRanged(r, uri+"/"+filepath.ToSlash(path), blocks, plan.BlockBytes)
		})
	}
	return nil, nil
}
