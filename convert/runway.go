package convert

import (
	"math"
	"sync"
)

// runway lets groups in, while there is room for them: so many at once, and so many bytes. A group says how large it will be; how much larger or
// smaller those were that landed corrects what the others say, and until one has landed their word stands.
type runway struct {
	mu       sync.Mutex
	free     *sync.Cond
	places   int
	limit    int64
	inside   int     // groups that entered and did not leave
	held     int64   // bytes of those that landed
	underway int64   // what those said that did not land
	ratio    float64 // the largest of size to word, of those that landed; 0: none has
	closed   bool
}

func newRunway(places int, limit int64) *runway {
	r := &runway{places: places, limit: limit}
	r.free = sync.NewCond(&r.mu)
	return r
}

// enter waits for room for a group that says its size; false where the runway was closed. One alone always has room.
func (r *runway) enter(word int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && r.full(word) {
		r.free.Wait()
	}
	r.inside, r.underway = r.inside+1, r.underway+word
	return !r.closed
}

// full says that a group must wait.
func (r *runway) full(word int64) bool {
	return r.inside > 0 && (r.inside >= r.places || r.expect(r.underway+word) > r.limit)
}

// expect is what will be held once groups landed that say some size.
func (r *runway) expect(word int64) int64 {
	if r.ratio > 0 {
		word = int64(math.Ceil(min(float64(word)*r.ratio, 1<<60)))
	}
	return r.held + word
}

// landed tells how large a group is, and what it had said.
func (r *runway) landed(word, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway -= word
	r.held, r.ratio = r.held+size, max(r.ratio, float64(size)/float64(max(word, 1)))
	r.free.Broadcast()
}

// leave takes a group away.
func (r *runway) leave(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside, r.held = r.inside-1, r.held-size
	r.free.Broadcast()
}

func (r *runway) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.free.Broadcast()
}
