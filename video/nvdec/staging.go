package nvdec

import (
	"sync"

	"github.com/goatnote-inc/robocache/internal/cudahost"
)

// Limits of a staging pool. A single larger copy may exceed maxStaging.
const (
	maxStaging = 64 << 20 // bytes
	maxBuffers = 64
)

// stagingPool is a pool of page-locked buffers for copies to the device. From other memory the
// driver makes a copy first, and waits for the device. The host waits for a copy only if all
// buffers are in use.
type stagingPool struct {
	driver driver

	mu sync.Mutex
	// buffers that no caller holds, in the order of their last copies
	idle  []*stagingBuffer
	bytes int
}

// stagingBuffer is one buffer of the pool. It can be reused after its event, which is recorded
// after its last copy.
type stagingBuffer struct {
	m     []byte
	event uintptr // 0: not created yet
}

// acquireBuffer returns a buffer of at least n bytes whose last copy is complete.
func (s *stagingPool) acquireBuffer(n int) (*stagingBuffer, error) {
	s.mu.Lock()
	x := &stagingBuffer{}
	if len(s.idle) > 0 {
		done, err := s.driver.eventReached(s.idle[0].event)
		if done || err != nil || s.bytes+n > maxStaging || len(s.idle) >= maxBuffers {
			x, s.idle = s.idle[0], s.idle[1:]
		}
	}
	if len(x.m) < n { // the buffer is enlarged below
		s.bytes += n - len(x.m)
	}
	s.mu.Unlock()
	err := s.awaitEvent(x.event)
	if err == nil && x.event == 0 {
		x.event, err = s.driver.newEvent()
	}
	if err == nil && len(x.m) < n {
		if x.m != nil {
			s.driver.freeHost(x.m)
			x.m = nil
		}
		x.m, err = s.driver.allocHost(n)
	}
	if err != nil {
		s.mu.Lock()
		s.bytes -= max(n, len(x.m))
		s.mu.Unlock()
		s.freeBuffer(x)
		return nil, err
	}
	return x, nil
}

// copyToDevice copies bytes to dst on the backend's stream. fill writes them to a staging buffer,
// and must write every byte that is read later.
func (s *stagingPool) copyToDevice(b *Backend, dst []byte, fill func(m []byte)) error {
	x, err := s.acquireBuffer(len(dst))
	if err != nil {
		return err
	}
	fill(x.m[:len(dst)])
	err = b.withStream(func(stream uintptr) error {
		if err := s.driver.copyFromHost(dst, x.m[:len(dst)], stream); err != nil {
			return err
		}
		return s.driver.recordEvent(x.event, stream)
	})
	if err != nil {
		_ = b.withStream(s.driver.waitStream) // the copy may have started
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, x)
	return err
}

// waitDevice blocks until all earlier work on the backend's stream is complete. It sleeps while it
// waits; the driver's own wait keeps a core busy.
func (s *stagingPool) waitDevice(b *Backend) error {
	x, err := s.acquireBuffer(0)
	if err != nil {
		return err
	}
	err = b.withStream(func(stream uintptr) error { return s.driver.recordEvent(x.event, stream) })
	if err == nil {
		err = s.awaitEvent(x.event)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, x)
	return err
}

// awaitEvent sleeps and polls until an event is reached.
func (s *stagingPool) awaitEvent(event uintptr) error {
	for event != 0 {
		if done, err := s.driver.eventReached(event); done || err != nil {
			return err
		}
		cudahost.Nap(pollInterval)
	}
	return nil
}

// freeBuffer frees the memory and the event of a buffer.
func (s *stagingPool) freeBuffer(x *stagingBuffer) {
	if x.m != nil {
		s.driver.freeHost(x.m)
	}
	if x.event != 0 {
		s.driver.freeEvent(x.event)
	}
}
