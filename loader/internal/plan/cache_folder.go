package plan

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/store"
)

// CacheFolder is the cache directory of a loader, opened when it is first wanted.
type CacheFolder struct {
	Config *options.Config
	Dir    *cache.Dir // nil: not opened
	kept   []func()   // end the use of dir by stores
}

// Open opens the cache directory, once. It returns nil if there is none.
func (f *CacheFolder) Open() (*cache.Dir, error) {
	cfg := f.Config
	if f.Dir != nil || !cfg.HasCacheDirectory() {
		return f.Dir, nil
	}
	var err error
	f.Dir, err = cache.Open(cfg.Cache, cache.Options{Budget: int64(cfg.CacheBudget), KeepUsed: true, Resident: max(int64(cfg.MemoryBudget)/16, 16<<20)})
	return f.Dir, err
}

// close ends every use of the directory.
func (f *CacheFolder) close() {
	for _, end := range f.kept {
		end()
	}
	if f.Dir != nil {
		_ = f.Dir.Close()
	}
}

// keep makes a remote dataset read through the cache directory.
func (f *CacheFolder) keep(ds robocache.Dataset) {
	own, ok := robocache.As[store.Source](ds)
	if !ok || !f.Config.CachesEncoded() || !robocache.IsRemote(own.Store()) {
		return
	}
	if dir, err := f.Open(); err == nil && dir != nil { // openCaches says what is wrong with it
		f.kept = append(f.kept, store.Keep(own.Store(), cache.Blocks{Dir: dir}, BlockBytes))
	}
}

// BlockBytes is the piece in which remote files are kept.
const BlockBytes = 256 << 10

// IsRemote says whether what a source reads for each batch is far away: its store, or its video files, of which the first that can be
// opened speaks for all.
func (src *Source) IsRemote(ctx context.Context) bool {
	if own, ok := robocache.As[store.Source](src.Dataset); ok && robocache.IsRemote(own.Store()) {
		return true
	}
	if src.Files == nil {
		return false
	}
	for c := range src.ImageColumns() {
		if c.IsStill {
			continue
		}
		for place := range min(src.Table.Len(), probes) {
			ref := make([]robocache.FrameRef, 1)
			if err := src.Dataset.Frames(ctx, c.Key, []robocache.Row{{Episode: src.Table.Episode(place)}}, ref); err != nil || ref[0].Path == "" {
				continue
			}
			if r, err := src.Files.Open(ctx, ref[0].Path); err == nil {
				defer r.Release()
				return r.Remote()
			}
		}
	}
	return false
}
