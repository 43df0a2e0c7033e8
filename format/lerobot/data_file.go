package lerobot

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/handles"
)

// maxOpen bounds how many data files are open at once.
const maxOpen = 32

// dataFile is an open data file.
type dataFile struct {
	robocache.Ranged
	name string
}

type handle = handles.Handle[int32, *dataFile]

// smallFile is the size up to which the file of one episode is read at once: a request costs more than its bytes.
const smallFile = 256 << 10

// memFile is a file that was read as a whole.
type memFile struct {
	b       []byte
	version string
}

func inMemory(ctx context.Context, r robocache.Ranged) (robocache.Ranged, error) {
	defer r.Close()
	m := &memFile{b: make([]byte, r.Size()), version: r.Version()}
	if err := r.ReadAt(ctx, m.b, 0); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *memFile) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m.b)) || copy(p, m.b[off:]) < len(p) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "read", Where: robocache.Where{"offset": off}, Msg: "read after the end of the file"}
	}
	return nil
}

func (m *memFile) Size() int64     { return int64(len(m.b)) }
func (m *memFile) Version() string { return m.version }
func (m *memFile) Close() error    { return nil }
