package write

import (
	"math"
	"sync"
)

// limiter lets groups in, while there is room for them: so many at once, and so many bytes. A group says how large it will be; how much larger or
// smaller those were that are finished corrects what the others say, and until one is finished their own estimate stands.
type limiter struct {
	mu       sync.Mutex
	free     *sync.Cond
	atOnce   int
	limit    int64
	inside   int     // groups that entered and did not leave
	held     int64   // bytes of those that are finished
	underway int64   // estimates of those that are not
	ratio    float64 // the largest of size to estimate, of those that are finished; 0: none is
	closed   bool
}

func newLimiter(atOnce int, limit int64) *limiter {
	r := &limiter{atOnce: atOnce, limit: limit}
	r.free = sync.NewCond(&r.mu)
	return r
}

// enter waits for room for a group that says its size; false where the limiter was closed. One alone always has room.
func (r *limiter) enter(estimate int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && r.full(estimate) {
		r.free.Wait()
	}
	r.inside, r.underway = r.inside+1, r.underway+estimate
	return !r.closed
}

// full says that a group must wait.
func (r *limiter) full(estimate int64) bool {
	return r.inside > 0 && (r.inside >= r.atOnce || r.expect(r.underway+estimate) > r.limit)
}

// expect is what will be held once groups of some estimate are finished.
func (r *limiter) expect(estimate int64) int64 {
	if r.ratio > 0 {
		estimate = int64(math.Ceil(min(float64(estimate)*r.ratio, 1<<60)))
	}
	return r.held + estimate
}

// finished tells how large a group is, and what was estimated.
func (r *limiter) finished(estimate, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway -= estimate
	r.held, r.ratio = r.held+size, max(r.ratio, float64(size)/float64(max(estimate, 1)))
	r.free.Broadcast()
}

// leave takes a group away.
func (r *limiter) leave(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside, r.held = r.inside-1, r.held-size
	r.free.Broadcast()
}

func (r *limiter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.free.Broadcast()
}
