package store

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// Sub is the part of a store below the folder dir; it can be written where s can. dir "" is s itself.
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

func (b *sub) URI() string  { return b.s.URI() + "/" + b.dir }
func (b *sub) Close() error { return Close(b.s) }

// at cleans before joining: "../x" must not climb out of dir.
func (b *sub) at(op, name string) (string, error) {
	name, err := CleanName(name)
	if err != nil {
		return "", fail(op, b.URI(), "", err)
	}
	return b.dir + "/" + name, nil
}

func (b *sub) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	full, err := b.at("open", name)
	if err != nil {
		return nil, err
	}
	return b.s.Open(ctx, full)
}

func (b *sub) Stat(ctx context.Context, name string) (Entry, error) {
	full, err := b.at("stat", name)
	if err != nil {
		return Entry{}, err
	}
	e, err := b.s.Stat(ctx, full)
	if err == nil {
		e.Name = e.Name[len(b.dir)+1:]
	}
	return e, err
}

func (b *sub) List(ctx context.Context, prefix string) ([]Entry, error) {
	return b.list(prefix, func(full string) ([]Entry, error) { return b.s.List(ctx, full) })
}

func (b *sub) list(prefix string, from func(full string) ([]Entry, error)) ([]Entry, error) {
	prefix, err := cleanPrefix(prefix)
	if err != nil {
		return nil, fail("list", b.URI(), "", err)
	}
	if prefix != "" {
		prefix = "/" + prefix
	}
	list, err := from(b.dir + prefix)
	for i := range list {
		list[i].Name = list[i].Name[len(b.dir)+1:]
	}
	return list, err
}

func (b *sub) readFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	full, err := b.at("read", name)
	if err != nil {
		return nil, err
	}
	return ReadFile(ctx, b.s, full, limit)
}

type writableSub struct {
	sub
	w Writable
}

func (b *writableSub) Create(ctx context.Context, name string) (Writer, error) {
	full, err := b.at("create", name)
	if err != nil {
		return nil, err
	}
	return b.w.Create(ctx, full)
}

func (b *writableSub) CreateNew(ctx context.Context, name string) (Writer, error) {
	full, err := b.at("create", name)
	if err != nil {
		return nil, err
	}
	return CreateNew(ctx, b.w, full)
}

func (b *writableSub) Remove(ctx context.Context, name string) error {
	full, err := b.at("remove", name)
	if err != nil {
		return err
	}
	return b.w.Remove(ctx, full)
}
