package rlds

import (
	"context"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// maxOpen bounds the shards that are open at a time.
const maxOpen = 64

// files keeps a bounded number of shards open.
type files struct {
	st   store.Store
	mu   sync.Mutex
	open map[string]*file
	tick int64
	shut bool
}

type file struct {
	r    robocache.Ranged
	name string
	refs int
	used int64
	gone bool // not in the map: closed by the last put
}

func newFiles(s store.Store) *files { return &files{st: s, open: map[string]*file{}} }

func (s *files) get(ctx context.Context, name string) (*file, error) {
	s.mu.Lock()
	if f := s.open[name]; f != nil {
		f.refs++
		s.tick++
		f.used = s.tick
		s.mu.Unlock()
		return f, nil
	}
	s.mu.Unlock()
	r, err := s.st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	f := &file{r: r, name: name, refs: 1}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[name] != nil || s.shut {
		f.gone = true // another goroutine was faster: this one serves its caller and goes
		return f, nil
	}
	s.tick++
	f.used = s.tick
	s.open[name] = f
	for len(s.open) > maxOpen {
		var oldest *file
		for _, o := range s.open {
			if o != f && (oldest == nil || o.used < oldest.used) {
				oldest = o
			}
		}
		s.drop(oldest)
	}
	return f, nil
}

// drop takes a file out of the map. s.mu is held.
func (s *files) drop(f *file) {
	delete(s.open, f.name)
	f.gone = true
	if f.refs == 0 {
		f.r.Close()
	}
}

func (s *files) put(f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.refs--; f.refs == 0 && f.gone {
		f.r.Close()
	}
}

func (s *files) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
	for _, f := range s.open {
		s.drop(f)
	}
}
