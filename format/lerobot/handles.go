package lerobot

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// handles keeps a bounded number of data files open.
type handles struct {
	mu    sync.Mutex
	open  map[int32]*handle
	max   int
	clock int64
	shut  bool
}

type handle struct {
	r    robocache.Ranged
	name string
	file int32
	refs int
	used int64
	idle bool // not in the map: closed by the last put
}

func (s *handles) get(file int32, open func() (robocache.Ranged, string, error)) (*handle, error) {
	s.mu.Lock()
	if h := s.open[file]; h != nil {
		h.refs++
		s.clock++
		h.used = s.clock
		s.mu.Unlock()
		return h, nil
	}
	s.mu.Unlock()
	r, name, err := open()
	if err != nil {
		return nil, err
	}
	h := &handle{r: r, name: name, file: file, refs: 1}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[file] != nil || s.shut {
		h.idle = true // another goroutine was faster: this one serves its caller and goes
		return h, nil
	}
	s.clock++
	h.used = s.clock
	s.open[file] = h
	for len(s.open) > s.max {
		var oldest *handle
		for _, o := range s.open {
			if o != h && (oldest == nil || o.used < oldest.used) {
				oldest = o
			}
		}
		delete(s.open, oldest.file)
		oldest.idle = true
		if oldest.refs == 0 {
			oldest.r.Close()
		}
	}
	return h, nil
}

func (s *handles) put(h *handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.refs--; h.refs == 0 && h.idle {
		h.r.Close()
	}
}

func (s *handles) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for k, h := range s.open {
		delete(s.open, k)
		h.idle = true
		if h.refs == 0 {
			h.r.Close()
		}
	}
}

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
