package store

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Overlay returns s with another Open. All other operations are those of s, and ReadFile reads from
// s itself. Closing the result closes s.
func Overlay(
	s Store, open func(ctx context.Context, name string) (robocache.Ranged, error),
) Store {
	return &overlay{s, open}
}

type overlay struct {
	Store
	open func(ctx context.Context, name string) (robocache.Ranged, error)
}

func (o *overlay) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	return o.open(ctx, name)
}

func (o *overlay) Close() error { return Close(o.Store) }
func (o *overlay) Remote() bool { return robocache.IsRemote(o.Store) }

func (o *overlay) Keep(c BlockCache, block int64) (end func()) { return Keep(o.Store, c, block) }

func (o *overlay) findFiles(
	ctx context.Context, prefix string, accept func(name string) bool,
) ([]Entry, error) {
	if f, ok := o.Store.(fileFinder); ok {
		return f.findFiles(ctx, prefix, accept)
	}
	return o.Store.List(ctx, prefix)
}

func (o *overlay) Folders(ctx context.Context, dir string) ([]string, error) {
	return Folders(ctx, o.Store, dir)
}

func (o *overlay) readWholeFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return ReadFile(ctx, o.Store, name, limit)
}
