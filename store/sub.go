package store

import (
	"context"
	"path"

	"github.com/goatnote-inc/robocache"
)

// Sub gives the part of s below the folder dir: its names are relative to dir, and cannot leave it.
// Closing it closes s.
func Sub(s Store, dir string) (Store, error) {
	dir, err := cleanPrefix(dir)
	if err != nil {
		return nil, fail("open", s.URI(), "", err)
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
	s   Store
	dir string
}

// in calls do with a name of s. It cleans before joining: "../x" must not climb out of dir.
func in[T any](b *sub, op, name string, do func(full string) (T, error)) (v T, err error) {
	if name, err = CleanName(name); err != nil {
		return v, fail(op, b.URI(), "", err)
	}
	return do(b.dir + "/" + name)
}

func (b *sub) URI() string  { return b.s.URI() + "/" + b.dir }
func (b *sub) Close() error { return Close(b.s) }
func (b *sub) Remote() bool { return robocache.IsRemote(b.s) }

// Keep is of the whole store.
func (b *sub) Keep(c BlockCache, block int64) (end func()) { return Keep(b.s, c, block) }

// own is a name of s as one of b.
func (b *sub) own(full string) string { return full[len(b.dir)+1:] }

func (b *sub) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	return in(
		b,
		"open",
		name,
		func(full string) (robocache.Ranged, error) { return b.s.Open(ctx, full) },
	)
}

func (b *sub) Stat(ctx context.Context, name string) (Entry, error) {
	e, err := in(b, "stat", name, func(full string) (Entry, error) { return b.s.Stat(ctx, full) })
	if err == nil {
		e.Name = b.own(e.Name)
	}
	return e, err
}

func (b *sub) List(ctx context.Context, prefix string) ([]Entry, error) {
	return b.files(ctx, prefix, nil)
}

func (b *sub) files(
	ctx context.Context,
	prefix string,
	is func(name string) bool,
) (list []Entry, err error) {
	if prefix, err = cleanPrefix(prefix); err != nil {
		return nil, fail("list", b.URI(), "", err)
	}
	full := path.Join(b.dir, prefix)
	if f, ok := b.s.(finder); ok && is != nil {
		list, err = f.files(ctx, full, func(name string) bool { return is(b.own(name)) })
	} else {
		list, err = b.s.List(ctx, full)
	}
	for i := range list {
		list[i].Name = b.own(list[i].Name)
	}
	return list, err
}

func (b *sub) Folders(ctx context.Context, dir string) ([]string, error) {
	return Folders(ctx, b.s, path.Join(b.dir, dir))
}

func (b *sub) readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	return in(
		b,
		"read",
		name,
		func(full string) ([]byte, error) { return ReadFile(ctx, b.s, full, limit) },
	)
}

type writableSub struct {
	sub
	w Writable
}

func (b *writableSub) Create(ctx context.Context, name string) (Writer, error) {
	return in(
		&b.sub,
		"create",
		name,
		func(full string) (Writer, error) { return b.w.Create(ctx, full) },
	)
}

func (b *writableSub) CreateNew(ctx context.Context, name string) (Writer, error) {
	return in(
		&b.sub,
		"create",
		name,
		func(full string) (Writer, error) { return CreateNew(ctx, b.w, full) },
	)
}

// Move is that of the whole store.
func (b *writableSub) Move(ctx context.Context, from, to string) error {
	_, err := in(&b.sub, "move", from, func(from string) (any, error) {
		return in(
			&b.sub,
			"move",
			to,
			func(to string) (any, error) { return nil, Move(ctx, b.w, from, to) },
		)
	})
	return err
}

func (b *writableSub) Remove(ctx context.Context, name string) error {
	_, err := in(
		&b.sub,
		"remove",
		name,
		func(full string) (any, error) { return nil, b.w.Remove(ctx, full) },
	)
	return err
}
