package store

import (
	"context"
	"io"

	"github.com/goatnote-inc/robocache"
)

// Entry describes one file of a store.
type Entry struct {
	Name    string // relative to the store's root, "/" between parts
	Size    int64
	Version string // ETag, or size and mtime
	Err     error  // of Files: what opening it says, where it is no regular file
}

// Store gives bytes below one root. Names are relative, "/"-separated, and never leave the root.
type Store interface {
	// URI names the root, without credentials.
	URI() string
	// Open opens a file for ranged reads.
	Open(ctx context.Context, name string) (robocache.Ranged, error)
	Stat(ctx context.Context, name string) (Entry, error)
	// List gives every file below prefix, sorted by name; ErrUnsupported where the protocol cannot
	// list (http).
	List(ctx context.Context, prefix string) ([]Entry, error)
}

// Writable is a Store that can be written.
type Writable interface {
	Store
	// Create begins a file that appears under its name, whole, at Commit, and not before.
	Create(ctx context.Context, name string) (Writer, error)
	Remove(ctx context.Context, name string) error
}

// Writer collects one file. Exactly one of Commit and Abort ends it; Abort after Commit does
// nothing.
type Writer interface {
	io.Writer
	io.WriterAt
	Commit() error
	Abort()
}

// Exclusive is a Writable that can put a file only where there is none.
type Exclusive interface {
	// CreateNew is Create, but Commit fails with ErrExists where the name is taken by then: of
	// several writers one wins.
	CreateNew(ctx context.Context, name string) (Writer, error)
}

// CreateNew begins a file that must not exist at Commit; ErrUnsupported where the store cannot
// promise that.
func CreateNew(ctx context.Context, w Writable, name string) (Writer, error) {
	if x, ok := w.(Exclusive); ok {
		return x.CreateNew(ctx, name)
	}
	return nil, unsupported(
		"create",
		w.URI(),
		"this store cannot put a file only where there is none",
		"",
	)
}
