package nvdec

import (
	"sync"

	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// Bounds of what staging holds, where one copy does not need more.
const (
	maxStaging = 64 << 20 // bytes
	maxPieces  = 64
)

// staging is page-locked memory that copies to the device pass through: of other memory the driver
// makes a copy of its own, and waits for the device. Nothing on the host waits for a copy, unless
// all memory is under way.
type staging struct {
	d driver

	mu    sync.Mutex
	list  []*staged // that no caller has in hand, the one that began first at the front
	bytes int
}

// staged is a piece of it. It is free when its event is reached: that is behind its last copy.
type staged struct {
	m     []byte
	event uintptr // 0: not yet
}

// take gives a piece of at least n bytes, whose last copy is over.
func (s *staging) take(n int) (*staged, error) {
	s.mu.Lock()
	x := &staged{}
	if len(s.list) > 0 {
		done, err := s.d.reached(s.list[0].event)
		if done || err != nil || s.bytes+n > maxStaging || len(s.list) >= maxPieces {
			x, s.list = s.list[0], s.list[1:]
		}
	}
	if len(x.m) < n { // who needs more brings a piece to its size
		s.bytes += n - len(x.m)
	}
	s.mu.Unlock()
	err := s.await(x.event)
	if err == nil && x.event == 0 {
		x.event, err = s.d.newEvent()
	}
	if err == nil && len(x.m) < n {
		if x.m != nil {
			s.d.freeHost(x.m)
			x.m = nil
		}
		x.m, err = s.d.host(n)
	}
	if err != nil {
		s.mu.Lock()
		s.bytes -= max(n, len(x.m))
		s.mu.Unlock()
		s.drop(x)
		return nil, err
	}
	return x, nil
}

// copy copies to the device what f writes, in the backend's order. f leaves no byte out that is
// read.
func (s *staging) copy(b *Backend, dst []byte, f func(m []byte)) error {
	x, err := s.take(len(dst))
	if err != nil {
		return err
	}
	f(x.m[:len(dst)])
	err = b.ordered(func(stream uintptr) error {
		if err := s.d.copyIn(dst, x.m[:len(dst)], stream); err != nil {
			return err
		}
		return s.d.record(x.event, stream)
	})
	if err != nil {
		_ = b.ordered(s.d.wait) // the copy may have begun
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
	return err
}

// wait returns when all that was put into the backend's order before is over. It gives its core
// away meanwhile, which the driver's own wait does not.
func (s *staging) wait(b *Backend) error {
	x, err := s.take(0)
	if err != nil {
		return err
	}
	err = b.ordered(func(stream uintptr) error { return s.d.record(x.event, stream) })
	if err == nil {
		err = s.await(x.event)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
	return err
}

// await naps until an event is reached.
func (s *staging) await(event uintptr) error {
	for event != 0 {
		if done, err := s.d.reached(event); done || err != nil {
			return err
		}
		cudahost.Nap(glance)
	}
	return nil
}

func (s *staging) drop(x *staged) {
	if x.m != nil {
		s.d.freeHost(x.m)
	}
	if x.event != 0 {
		s.d.freeEvent(x.event)
	}
}
