package pipeline

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/store"
)

// openCaches divides the memory budget and opens the frame store.
//
// Fixed shares of memory_budget are an eighth for idle decoders, an eighth for tables and indexes
// of the datasets, a sixteenth for mapped pages of a cache directory, and a thirty-second for
// timestamps. Stored frames get half of the budget by default, or a quarter for a RAM cache in
// addition to a pool. Batches under construction get half of what stored frames leave. Without
// stored frames they get five eighths of the budget.
func (a *Assembler) openCaches(ctx context.Context) error {
	cfg := &a.Config
	total := int64(cfg.MemoryBudget)
	hasPool := cfg.Shuffle == order.Pool && a.HasVideo()
	var poolBytes, cacheBytes int64
	if hasPool {
		poolBytes = int64(cfg.PoolSize)
	}
	if cfg.Cache == options.CacheInRAM {
		if cacheBytes = int64(cfg.CacheBudget); cacheBytes == 0 {
			cacheBytes = total / 2
			if hasPool {
				cacheBytes = total / 4
			}
		}
	}
	keptBytes := poolBytes + cacheBytes
	if keptBytes > total/8*7 {
		return robocache.Misuse("loader", nil, "pool_size and cache_budget leave nothing of "+
			"memory_budget for batches").
			Expected("at most "+layout.FormatMiB(total/8*7)+
				" together", layout.FormatMiB(keptBytes)).
			WithHint("raise memory_budget")
	}
	a.Budget = total / 8 * 5
	if keptBytes > 0 {
		a.Budget = (total - keptBytes) / 2
	}
	storeConfig := frames.Config{
		KeptBytes:  keptBytes,
		CacheBytes: cacheBytes,
		KeepPlanes: a.KeepsPlanes(),
		Warn:       a.Report.Warn,
	}
	if cfg.HasCacheDirectory() {
		var err error
		if storeConfig.Dir, err = a.openCacheDirectory(ctx); err != nil {
			return err
		}
	}
	hasRemote := false
	for _, src := range a.Sources {
		hasRemote = hasRemote || src.IsRemote(ctx)
	}
	if hasRemote {
		a.readWorkers = cmp.Or(cfg.IOThreads, defaultReadWorkers)
	}
	if hasRemote || a.DeviceWorkers > 0 {
		storeConfig.Cores, storeConfig.ReadAheadBytes = cfg.Threads, max(a.Budget/8, 1<<20)
	}
	if a.FrameDevice != nil && (keptBytes > 0 || cfg.Cache == options.CacheOnDevice) {
		storeConfig.DeviceBytes = cmp.Or(int64(cfg.DeviceMemory), keptBytes)
		storeConfig.DeviceMemory = a.FrameDevice
	}
	if cfg.Cache == options.CacheOnDevice {
		// Pool frames that do not fit into device memory are stored on the host.
		storeConfig.CacheBytes = storeConfig.DeviceBytes
	}
	a.Frames = frames.New(storeConfig)
	return nil
}

// defaultReadWorkers is the number of reads in flight if io_threads is not set. At 5 ms per request
// it allows about 6,000 requests per second.
const defaultReadWorkers = 32

// openCacheDirectory opens the cache directory. It returns the directory if decoded frames are
// cached. If the bytes of remote files are cached, it wraps the video files instead and returns
// nil.
func (a *Assembler) openCacheDirectory(ctx context.Context) (*cache.Dir, error) {
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
		// Videos outside the dataset's folder may be in other stores.
		l.Videos.Wrap(func(path string, r robocache.Ranged) robocache.Ranged {
			return store.CachedRanged(r, uri+"/"+filepath.ToSlash(path), blocks, plan.BlockBytes)
		})
	}
	return nil, nil
}
