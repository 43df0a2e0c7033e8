package lerobot

import (
	"context"
	"maps"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// recount counts the numbers of a dataset whose info.json is not there yet.
func recount(ctx context.Context, st store.Store, info []byte) (robocache.Stats, error) {
	ds, err := OpenStore(ctx, unfinished{st, info}, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	var mu sync.Mutex
	out := robocache.Stats{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range ds.Info().Features {
		if f.Kind != robocache.KindNumeric {
			continue
		}
		g.Go(func() error {
			fs, err := stats.Compute(ctx, ds, stats.Options{Keys: []string{f.Key}, Frames: stats.NoFrames, Budget: 64 << 20})
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(out, fs)
			return err
		})
	}
	return out, g.Wait()
}

// unfinished is a store in which info.json is, too. Closing it closes nothing.
type unfinished struct {
	store.Store
	info []byte
}

func (u unfinished) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	if name == infoPath {
		return infoBytes(u.info), nil
	}
	return u.Store.Open(ctx, name)
}

// infoBytes is info.json in memory.
type infoBytes []byte

func (b infoBytes) ReadAt(_ context.Context, p []byte, off int64) error { copy(p, b[off:]); return nil }
func (b infoBytes) Size() int64                                         { return int64(len(b)) }
func (b infoBytes) Version() string                                     { return "unfinished" }
func (b infoBytes) Close() error                                        { return nil }
