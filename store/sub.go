package store

import (
	"context"
	"path"

	"github.com/goatnote-inc/robocache"
)

// Sub returns the part of s below the folder dir. Its names are relative to dir and cannot leave
// it. Closing it closes s.
func Sub(s Store, dir string) (Store, error) {
	dir, err := cleanPrefix(dir)
	if err != nil {
		return nil, storeError("open", s.URI(), "", err)
	}
	if dir == "" {
		return s, nil
	}
	r := sub{s, dir}
	if w, ok := s.(Writable); ok {
		return &writableSub{r, w}, nil
	}
	return &r, nil
}

type sub struct {
	parent Store
	dir    string
}

// withFullName calls do with the name of a file in the parent store. It cleans the name before
// joining it with dir, so that "../x" cannot leave dir.
func withFullName[T any](
	b *sub,
	op, name string,
	do func(full string) (T, error),
) (v T, err error) {
	if name, err = CleanName(name); err != nil {
		return v, storeError(op, b.URI(), "", err)
	}
	return do(b.dir + "/" + name)
}

func (b *sub) URI() string  { return b.parent.URI() + "/" + b.dir }
func (b *sub) Close() error { return Close(b.parent) }
func (b *sub) Remote() bool { return robocache.IsRemote(b.parent) }

// Keep applies to the whole parent store.
func (b *sub) Keep(c BlockCache, block int64) (end func()) { return Keep(b.parent, c, block) }

// relativeName returns a name of the parent store relative to dir.
func (b *sub) relativeName(full string) string { return full[len(b.dir)+1:] }

func (b *sub) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	return withFullName(
		b,
		"open",
		name,
		func(full string) (robocache.Ranged, error) { return b.parent.Open(ctx, full) },
	)
}

func (b *sub) Stat(ctx context.Context, name string) (Entry, error) {
	e, err := withFullName(
		b,
		"stat",
		name,
		func(full string) (Entry, error) { return b.parent.Stat(ctx, full) },
	)
	if err == nil {
		e.Name = b.relativeName(e.Name)
	}
	return e, err
}

func (b *sub) List(ctx context.Context, prefix string) ([]Entry, error) {
	return b.findFiles(ctx, prefix, nil)
}

// findFiles implements fileFinder. The names in the result, and those passed to accept, are
// relative to dir.
func (b *sub) findFiles(
	ctx context.Context,
	prefix string,
	accept func(name string) bool,
) (list []Entry, err error) {
	if prefix, err = cleanPrefix(prefix); err != nil {
		return nil, storeError("list", b.URI(), "", err)
	}
	full := path.Join(b.dir, prefix)
	if f, ok := b.parent.(fileFinder); ok && accept != nil {
		acceptFull := func(name string) bool { return accept(b.relativeName(name)) }
		list, err = f.findFiles(ctx, full, acceptFull)
	} else {
		list, err = b.parent.List(ctx, full)
	}
	for i := range list {
		list[i].Name = b.relativeName(list[i].Name)
	}
	return list, err
}

func (b *sub) Folders(ctx context.Context, dir string) ([]string, error) {
	return Folders(ctx, b.parent, path.Join(b.dir, dir))
}

func (b *sub) readWholeFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return withFullName(
		b,
		"read",
		name,
		func(full string) ([]byte, error) { return ReadFile(ctx, b.parent, full, limit) },
	)
}

type writableSub struct {
	sub
	w Writable
}

func (b *writableSub) Create(ctx context.Context, name string) (Writer, error) {
	return withFullName(
		&b.sub,
		"create",
		name,
		func(full string) (Writer, error) { return b.w.Create(ctx, full) },
	)
}

func (b *writableSub) CreateNew(ctx context.Context, name string) (Writer, error) {
	return withFullName(
		&b.sub,
		"create",
		name,
		func(full string) (Writer, error) { return CreateNew(ctx, b.w, full) },
	)
}

// Move renames a file in the parent store.
func (b *writableSub) Move(ctx context.Context, from, to string) error {
	_, err := withFullName(&b.sub, "move", from, func(fullFrom string) (any, error) {
		return withFullName(&b.sub, "move", to, func(fullTo string) (any, error) {
			return nil, Move(ctx, b.w, fullFrom, fullTo)
		})
	})
	return err
}

func (b *writableSub) Remove(ctx context.Context, name string) error {
	_, err := withFullName(
		&b.sub,
		"remove",
		name,
		func(full string) (any, error) { return nil, b.w.Remove(ctx, full) },
	)
	return err
}
