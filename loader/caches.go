package loader

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/store"
)

// What Config.Cache names, beside a directory.
const (
	inRAM    = "ram"
	onDevice = "device"
)

// directory says that the cache is one.
func (cfg *Config) directory() bool {
	return cfg.Cache != "" && cfg.Cache != inRAM && cfg.Cache != onDevice
}

// openCaches splits the memory budget, and makes the pool's and the cache's room.
//
// An eighth of memory_budget is for idle decoders, one for the tables and indexes of the datasets, a sixteenth for mapped pages of a
// cache directory, a thirty-second for timestamps. Half of the whole is for kept frames where there are any (of a RAM cache beside a pool, a
// quarter more), and half of what they leave for batches under construction; without them, five eighths of the whole.
func (a *assembler) openCaches(ctx context.Context) error {
	cfg := &a.cfg
	total := int64(cfg.MemoryBudget)
	ram := cfg.Cache == inRAM
	pool := cfg.Shuffle == order.Pool && a.hasVideo()
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
			Expected("at most "+mib(total/8*7)+" together", mib(kept)).
			WithHint("raise memory_budget")
	}
	a.budget = total / 8 * 5
	if kept > 0 {
		a.budget = (total - kept) / 2
	}
	own := frames.Config{Kept: kept, Cache: room, Planar: a.planar(), Warn: a.report.warn}
	if cfg.directory() {
		var err error
		if own.Dir, err = a.openDir(ctx); err != nil {
			return err
		}
	}
	reads := false
	for _, src := range a.sources {
		reads = reads || src.isRemote(ctx)
	}
	if reads {
		a.readers = cmp.Or(cfg.IOThreads, defaultReads)
	}
	if reads || a.engines > 0 {
		own.Cores, own.Ahead = cfg.Threads, max(a.budget/8, 1<<20)
	}
	if a.device != nil && (kept > 0 || cfg.Cache == onDevice) {
		own.There, own.Device = cmp.Or(int64(cfg.DeviceMemory), kept), a.device
	}
	if cfg.Cache == onDevice {
		own.Cache = own.There // residents of a pool that it does not take lie on the host
	}
	a.store = frames.New(own)
	return nil
}

// cacheFolder is the cache directory of a loader, opened when it is first wanted.
type cacheFolder struct {
	cfg  *Config
	dir  *cache.Dir // nil: not opened
	kept []func()   // end the use of dir by stores
}

// open opens the cache directory, once. It returns nil if there is none.
func (f *cacheFolder) open() (*cache.Dir, error) {
	cfg := f.cfg
	if f.dir != nil || !cfg.directory() {
		return f.dir, nil
	}
	var err error
	f.dir, err = cache.Open(cfg.Cache, cache.Options{Budget: int64(cfg.CacheBudget), KeepUsed: true, Resident: max(int64(cfg.MemoryBudget)/16, 16<<20)})
	return f.dir, err
}

// close ends every use of the directory.
func (f *cacheFolder) close() {
	for _, end := range f.kept {
		end()
	}
	if f.dir != nil {
		_ = f.dir.Close()
	}
}

// defaultReads is how many reads are in flight where nothing is said: at 5 ms a request, some six thousand a second.
const defaultReads = 32

// openDir makes the cache directory one of decoded frames, or, and then gives nil, of the bytes that are read of remote files.
func (a *assembler) openDir(ctx context.Context) (*cache.Dir, error) {
	cfg := &a.cfg
	dir, err := a.folder.open()
	if err != nil {
		return nil, err
	}
	encoded := cfg.CacheFormat == CacheEncoded
	for _, src := range a.sources {
		encoded = encoded || cfg.keepsBytes() && src.isRemote(ctx)
	}
	if !encoded {
		return dir, nil
	}
	blocks := cache.Blocks{Dir: dir}
	for _, src := range a.sources {
		l, ok := src.files.(*frames.Library)
		if !ok {
			continue
		}
		uri := src.ds.Info().URI
		l.Lib.Wrap(func(path string, r robocache.Ranged) robocache.Ranged { // of other stores: videos beside a dataset
			return store.CachedRanged(r, uri+"/"+filepath.ToSlash(path), blocks, blockBytes)
		})
	}
	return nil, nil
}

// keepsBytes says that the cache directory keeps what is read of remote files, and not frames.
func (cfg *Config) keepsBytes() bool {
	return cfg.CacheFormat == CacheEncoded || cfg.CacheFormat == CacheAuto && len(cfg.ImageSize) == 0
}

// keep makes a remote dataset read through the cache directory.
func (f *cacheFolder) keep(ds robocache.Dataset) {
	own, ok := robocache.As[store.Source](ds)
	if !ok || !f.cfg.keepsBytes() || !robocache.IsRemote(own.Store()) {
		return
	}
	if dir, err := f.open(); err == nil && dir != nil { // openCaches says what is wrong with it
		f.kept = append(f.kept, store.Keep(own.Store(), cache.Blocks{Dir: dir}, blockBytes))
	}
}

// blockBytes is the piece in which remote files are kept.
const blockBytes = 256 << 10

// planar says whether frames are kept as the decoder's planes: half the bytes of RGB at the size of the file, and any frame of the
// batch can be made of them. At a size of its own, pixels are smaller, and need no scaling again.
func (a *assembler) planar() bool {
	switch a.cfg.CacheFormat {
	case CachePlanes:
		return true
	case CachePixels:
		return false
	}
	for _, src := range a.sources {
		if len(src.cfg.ImageSize) > 0 {
			return false
		}
	}
	return true
}

// isRemote says whether what a source reads for each batch is far away: its store, or its video files, of which the first that can be
// opened speaks for all.
func (src *source) isRemote(ctx context.Context) bool {
	if own, ok := robocache.As[store.Source](src.ds); ok && robocache.IsRemote(own.Store()) {
		return true
	}
	if src.files == nil {
		return false
	}
	for c := range src.imageColumns() {
		if c.still {
			continue
		}
		for place := range min(src.table.Len(), probes) {
			ref := make([]robocache.FrameRef, 1)
			if err := src.ds.Frames(ctx, c.key, []robocache.Row{{Episode: src.table.Episode(place)}}, ref); err != nil || ref[0].Path == "" {
				continue
			}
			if r, err := src.files.Open(ctx, ref[0].Path); err == nil {
				defer r.Release()
				return r.Remote()
			}
		}
	}
	return false
}
