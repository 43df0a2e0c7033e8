package calvin

import (
	"sync"

	"github.com/goatnote-inc/robocache"
)

// maxOpen is how many frames stay open: the streams of a batch are asked for one after the other, and each would open its frames again.
const maxOpen = 128

// handles keeps a bounded number of files open.
type handles struct {
	mu    sync.Mutex
	open  map[int64]*handle
	clock int64
	shut  bool
}

type handle struct {
	r    robocache.Ranged
	id   int64
	refs int
	used int64
	idle bool // not in the map: closed by the last put
}

func (s *handles) get(id int64, open func() (robocache.Ranged, error)) (*handle, error) {
	s.mu.Lock()
	if h := s.open[id]; h != nil {
		h.refs++
		s.clock++
		h.used = s.clock
		s.mu.Unlock()
		return h, nil
	}
	s.mu.Unlock()
	r, err := open()
	if err != nil {
		return nil, err
	}
	h := &handle{r: r, id: id, refs: 1}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] != nil || s.shut {
		h.idle = true // another goroutine was faster: this one serves its caller and goes
		return h, nil
	}
	if s.open == nil {
		s.open = map[int64]*handle{}
	}
	s.clock++
	h.used = s.clock
	s.open[id] = h
	for len(s.open) > maxOpen {
		var oldest *handle
		for _, o := range s.open {
			if o != h && (oldest == nil || o.used < oldest.used) {
				oldest = o
			}
		}
		s.drop(oldest)
	}
	return h, nil
}

// drop takes a handle out; s.mu is held.
func (s *handles) drop(h *handle) {
	delete(s.open, h.id)
	if h.idle = true; h.refs == 0 {
		h.r.Close()
	}
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
	for _, h := range s.open {
		s.drop(h)
	}
}
