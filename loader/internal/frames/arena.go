package frames

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
)

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// arena holds equal pieces of memory outside the Go heap, in slabs: what a decoded frame is kept in. All sizes together stay
// below limit. A slab with nothing in it makes room for another size.
type arena struct {
	limit  int64
	memory buffers.Allocator

	mu     sync.Mutex
	sizes  map[int]*pieces
	mapped int64
	used   int64
	peak   int64
}

// pieces are the slabs of one size.
type pieces struct {
	arena *arena
	size  int
	slabs map[*slab]struct{}
	free  []piece
}

type slab struct {
	mem  []byte
	held int // pieces in use
}

// piece is memory for one frame.
type piece struct {
	mem  []byte
	slab *slab
	own  *pieces
}

// slabBytes is large, so that the kernel finds huge pages for it: first writes then cost a fifth.
const slabBytes = 64 << 20

// ArenaBytes is what n bytes take.
func ArenaBytes(n int) int64 { return int64(roundUp(max(n, 1), 64)) }

func newArena(limit int64, memory buffers.Allocator) *arena {
	return &arena{limit: limit, memory: memory, sizes: map[int]*pieces{}}
}

// allocate gives a piece of at least n bytes at a 64-byte boundary; ok is false where the limit does not allow it.
func (r *arena) allocate(n int) (p piece, ok bool, err error) {
	size := int(ArenaBytes(n))
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sizes[size]
	if s == nil {
		s = &pieces{arena: r, size: size, slabs: map[*slab]struct{}{}}
		r.sizes[size] = s
	}
	if len(s.free) == 0 {
		if ok, err := r.mapSlab(s); !ok {
			return piece{}, false, err
		}
	}
	p = s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	p.slab.held++
	r.used += int64(size)
	return p, true, nil
}

// mapSlab maps a slab: as many pieces as the limit allows, at most slabBytes.
func (r *arena) mapSlab(s *pieces) (bool, error) {
	want := max(slabBytes/s.size, 1) * s.size
	if r.mapped+int64(want) > r.limit {
		r.unmapSlabs(s, int64(want))
	}
	if left := r.limit - r.mapped; int64(want) > left {
		want = int(left) / s.size * s.size
	}
	if want <= 0 {
		return false, nil
	}
	mem, err := r.memory.Alloc(roundUp(want, buffers.PageSize))
	if err != nil {
		return false, robocache.ResourceLimit("loader", nil, "no memory for %d bytes of kept frames", want).
			WithCause(err).WithHint("a smaller pool_size, cache_budget or memory_budget; ulimit -v")
	}
	b := &slab{mem: mem}
	s.slabs[b] = struct{}{}
	r.mapped += int64(len(mem))
	r.peak = max(r.peak, r.mapped)
	for at := want - s.size; at >= 0; at -= s.size {
		s.free = append(s.free, piece{mem[at : at+s.size : at+s.size], b, s})
	}
	return true, nil
}

// unmapSlabs unmaps empty slabs of other sizes until so many bytes fit.
func (r *arena) unmapSlabs(keep *pieces, want int64) {
	for _, s := range r.sizes {
		if s == keep {
			continue
		}
		for b := range s.slabs {
			if r.mapped+want <= r.limit {
				return
			}
			if b.held == 0 {
				r.drop(s, b)
			}
		}
	}
}

func (r *arena) drop(s *pieces, b *slab) {
	delete(s.slabs, b)
	s.free = slices.DeleteFunc(s.free, func(p piece) bool { return p.slab == b })
	r.mapped -= int64(len(b.mem))
	r.memory.Free(b.mem)
}

func (r *arena) freePiece(p piece) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.slab.held--
	r.used -= int64(p.own.size)
	p.own.free = append(p.own.free, p)
}

// usage says how many bytes pieces in use take, and how many are and were mapped.
func (r *arena) usage() (used, mapped, peak int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used, r.mapped, r.peak
}

func (r *arena) unmapAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sizes {
		for b := range s.slabs {
			r.memory.Free(b.mem)
		}
	}
	r.sizes, r.mapped, r.used = map[int]*pieces{}, 0, 0
}
