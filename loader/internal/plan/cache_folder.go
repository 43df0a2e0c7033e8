package plan

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/store"
)

// CacheFolder is the cache directory of a loader. It is opened at the first use.
type CacheFolder struct {
	Config   *options.Config
	Dir      *cache.Dir // nil: not opened
	releases []func()   // each ends the use of Dir by a store
}

// Open opens the cache directory, once. It returns nil if there is none.
func (f *CacheFolder) Open() (*cache.Dir, error) {
	cfg := f.Config
	if f.Dir != nil || !cfg.HasCacheDirectory() {
		return f.Dir, nil
	}
	var err error
	f.Dir, err = cache.Open(cfg.Cache, cache.Options{
		Budget:   int64(cfg.CacheBudget),
		KeepUsed: true,
		Resident: max(int64(cfg.MemoryBudget)/16, 16<<20),
	})
	return f.Dir, err
}

// close ends every use of the directory.
func (f *CacheFolder) close() {
	for _, end := range f.releases {
		end()
	}
	if f.Dir != nil {
		_ = f.Dir.Close()
	}
}

// cacheReads makes a remote dataset read through the cache directory.
func (f *CacheFolder) cacheReads(ds robocache.Dataset) {
	source, ok := robocache.As[store.Source](ds)
	if !ok || !f.Config.CachesEncoded() || !robocache.IsRemote(source.Store()) {
		return
	}
	if dir, err := f.Open(); err == nil && dir != nil { // pipeline.New reports the error
		f.releases = append(
			f.releases,
			store.Keep(source.Store(), cache.Blocks{Dir: dir}, BlockBytes),
		)
	}
}

// BlockBytes is the size of the blocks in which remote files are cached.
const BlockBytes = 256 << 10

// IsRemote reports whether the data that a source reads for each batch is remote: its store, or its
// video files. The first video file that can be opened decides for all.
func (src *Source) IsRemote(ctx context.Context) bool {
	if source, ok := robocache.As[store.Source](src.Dataset); ok &&
		robocache.IsRemote(source.Store()) {
		return true
	}
	if src.Files == nil {
		return false
	}
	for c := range src.ImageColumns() {
		if c.IsStill {
			continue
		}
		for place := range min(src.Table.Len(), maxProbes) {
			ref := make([]robocache.FrameRef, 1)
			rows := []robocache.Row{{Episode: src.Table.Episode(place)}}
			if err := src.Dataset.Frames(
				ctx,
				c.StreamKey(),
				rows,
				ref,
			); err != nil ||
				ref[0].Path == "" {
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
