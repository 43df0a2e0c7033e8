package store

import (
	"context"
	"io"
	"path"

	"github.com/goatnote-inc/robocache"
)

// Mover is a Writable that can rename a file without copying its bytes.
type Mover interface {
	Move(ctx context.Context, from, to string) error
}

// Move renames a file and replaces an existing one. If the store cannot rename, Move copies the
// bytes.
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

// Copy writes the bytes of an open file to name. The file appears complete or not at all.
func Copy(ctx context.Context, src robocache.Ranged, w Writable, name string) (err error) {
	out, err := w.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	writeBlock := func(b []byte) error {
		_, err := out.Write(b)
		return err
	}
	if err := EachBlock(ctx, src, writeBlock); err != nil {
		return err
	}
	return out.Commit()
}

// EachBlock calls yield with the bytes of a file, block by block.
func EachBlock(ctx context.Context, f robocache.Ranged, yield func([]byte) error) error {
	buf := make([]byte, min(1<<20, f.Size())) // a small buffer suffices for a small file
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

// Move renames a file. The new name becomes durable with the next file that is committed in its
// folder.
func (l *Local) Move(ctx context.Context, from, to string) (err error) {
	cleanFrom, err := cleanFor(ctx, l.uri, "move", from)
	if err != nil {
		return err
	}
	cleanTo, err := cleanFor(ctx, l.uri, "move", to)
	if err != nil {
		return err
	}
	from, to = cleanFrom, cleanTo
	err = l.root.MkdirAll(path.Dir(l.rootPath(to)), 0o777)
	if err := storeError("move", l.uri, to, err); err != nil {
		return err
	}
	return storeError("move", l.uri, from, l.root.Rename(l.rootPath(from), l.rootPath(to)))
}

// ReaderAt adapts an open file to io.ReaderAt.
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
