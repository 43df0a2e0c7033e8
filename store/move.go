package store

import (
	"context"
	"io"
	"path"

	"github.com/goatnote-inc/robocache"
)

// Mover is a Writable that gives a file another name without copying its bytes.
type Mover interface {
	Move(ctx context.Context, from, to string) error
}

// Move gives a file another name, which takes the place of what stood there. Where the store has no
// way of its own, its bytes are copied.
func Move(ctx context.Context, w Writable, from, to string) (err error) {
	defer robocache.LocateIn(&err, "file", from)
	if path.Clean(from) == path.Clean(to) {
		return nil
	}
	if m, ok := w.(Mover); ok {
		return m.Move(ctx, from, to)
	}
	src, err := w.Open(ctx, from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := Copy(ctx, src, w, to); err != nil {
		return err
	}
	return w.Remove(ctx, from)
}

// Copy writes the bytes of an open file as another, which appears whole.
func Copy(ctx context.Context, src robocache.Ranged, w Writable, name string) (err error) {
	out, err := w.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := EachBlock(
		ctx,
		src,
		func(b []byte) error { _, err := out.Write(b); return err },
	); err != nil {
		return err
	}
	return out.Commit()
}

// EachBlock gives the bytes of a file in blocks.
func EachBlock(ctx context.Context, f robocache.Ranged, yield func([]byte) error) error {
	buf := make([]byte, min(1<<20, f.Size())) // many files are small
	for off := int64(0); off < f.Size(); {
		b := buf[:min(int64(len(buf)), f.Size()-off)]
		if err := f.ReadAt(ctx, b, off); err != nil {
			return err
		}
		if err := yield(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// Move renames; the folder's new entry is as durable as the next file that is committed.
func (l *Local) Move(ctx context.Context, from, to string) (err error) {
	cleanValue, err := clean(ctx, l.uri, "move", from)
	if err != nil {
		return err
	}
	cleanValue2, err := clean(ctx, l.uri, "move", to)
	if err != nil {
		return err
	}
	from, to = cleanValue, cleanValue2
	if err := fail("move", l.uri, to, l.root.MkdirAll(path.Dir(l.at(to)), 0o777)); err != nil {
		return err
	}
	return fail("move", l.uri, from, l.root.Rename(l.at(from), l.at(to)))
}

// ReaderAt is an open file as the standard library reads one.
type ReaderAt struct {
	Ctx  context.Context
	File robocache.Ranged
}

func (r ReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), max(0, r.File.Size()-off)))
	if err := r.File.ReadAt(r.Ctx, p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
