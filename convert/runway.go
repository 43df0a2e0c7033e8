package convert

import "sync"

// runway lets groups in, while there is room for them: so many at once, and so many bytes.
type runway struct {
	mu       sync.Mutex
	free     *sync.Cond
	places   int
	limit    int64
	inside   int   // groups that entered and did not leave
	held     int64 // bytes of those that landed
	underway int   // groups that did not land
	largest  int64 // that landed
	closed   bool
}

func newRunway(places int, limit int64) *runway {
	r := &runway{places: places, limit: limit}
	r.free = sync.NewCond(&r.mu)
	return r
}

// enter waits for room; false where the runway was closed. One alone always has room.
func (r *runway) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && r.inside > 0 && (r.inside >= r.places || r.held+int64(r.underway+1)*r.largest > r.limit) {
		r.free.Wait()
	}
	r.inside, r.underway = r.inside+1, r.underway+1
	return !r.closed
}

// landed tells how large a group is.
func (r *runway) landed(size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway--
	r.held, r.largest = r.held+size, max(r.largest, size)
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
