package store

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Entry describes one file of a store.
type Entry struct {
	Name    string // relative to the store's root, with "/" between parts
	Size    int64
	Version string // ETag, or size and mtime
	Err     error  // set by Files: error of Open if the entry is not a regular file
}

// Store reads bytes below one root. Names are relative, use "/", and never leave the root. All
// methods are safe for concurrent use.
type Store interface {
	// URI returns the name of the root without credentials.
	URI() string
	// Open opens a file for ranged reads. The caller must close it.
	Open(ctx context.Context, name string) (robocache.Ranged, error)
	// Stat returns the size and version of a file.
	Stat(ctx context.Context, name string) (Entry, error)
	// List returns all files below prefix, sorted by name. If the protocol cannot list (http), the
	// error is ErrUnsupported.
	List(ctx context.Context, prefix string) ([]Entry, error)
}

// Writable is a Store that can be written.
type Writable interface {
	Store
	// Create begins a file. It appears under its name, complete, at Commit.
	Create(ctx context.Context, name string) (Writer, error)
	// Remove deletes a file. A missing name is ErrNotFound.
	Remove(ctx context.Context, name string) error
}

// Writer writes one file. Exactly one of Commit and Abort ends it. Abort after Commit does nothing.
type Writer interface {
	io.Writer
	io.WriterAt
	// Commit makes the file durable and visible under its name.
	Commit() error
	// Abort discards the written bytes.
	Abort()
}

// Exclusive is a Writable that can create a file only if none exists.
type Exclusive interface {
	// CreateNew is Create, but Commit returns ErrExists if the name exists by then. If several
	// writers use one name, one succeeds.
	CreateNew(ctx context.Context, name string) (Writer, error)
}

// CreateNew begins a file that must not exist at Commit. If the store cannot guarantee this, the
// error is ErrUnsupported.
func CreateNew(ctx context.Context, w Writable, name string) (Writer, error) {
	if x, ok := w.(Exclusive); ok {
		return x.CreateNew(ctx, name)
	}
	return nil, unsupportedError(
		"create",
		w.URI(),
		"this store cannot create a file only if none exists",
		"",
	)
}

// Modified returns the modification time in the version of a local file, in nanoseconds since the
// epoch. It returns false for other versions.
func (e *Entry) Modified() (ns int64, ok bool) {
	size, rest, _ := strings.Cut(e.Version, "-")
	modified, _, _ := strings.Cut(rest, "-")
	if size != strconv.FormatInt(e.Size, 10) {
		return 0, false // an ETag or a generation
	}
	ns, err := strconv.ParseInt(modified, 10, 64)
	return ns, err == nil
}
