package frames

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
)

// roundUp returns the smallest multiple of to that is at least n.
func roundUp(n, to int) int { return (n + to - 1) / to * to }

// arena allocates the memory of stored frames outside the Go heap, in pieces of equal size per size
// class. The mapped slabs of all classes together stay below limit. An empty slab of one class is
// unmapped when another class needs memory. Safe for concurrent use.
type arena struct {
	limit  int64
	memory buffers.Allocator

	mu          sync.Mutex
	classes     map[int]*sizeClass
	mappedBytes int64
	usedBytes   int64
	peakBytes   int64
}

// sizeClass holds the slabs and free pieces of one size.
type sizeClass struct {
	arena      *arena
	size       int
	slabs      map[*slab]struct{}
	freePieces []piece
}

type slab struct {
	mem        []byte
	usedPieces int // pieces that hold a frame
}

// piece is the memory of one frame.
type piece struct {
	mem   []byte
	slab  *slab
	class *sizeClass
}

// slabBytes is large enough for huge pages, which makes the first writes five times faster.
const slabBytes = 64 << 20

// ArenaBytes returns the bytes that an allocation of n bytes occupies in an arena.
func ArenaBytes(n int) int64 { return int64(roundUp(max(n, 1), 64)) }

func newArena(limit int64, memory buffers.Allocator) *arena {
	return &arena{limit: limit, memory: memory, classes: map[int]*sizeClass{}}
}

// allocate returns a piece of at least n bytes that begins at a 64-byte boundary. ok is false if
// the limit does not allow it.
func (r *arena) allocate(n int) (p piece, ok bool, err error) {
	size := int(ArenaBytes(n))
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.classes[size]
	if s == nil {
		s = &sizeClass{arena: r, size: size, slabs: map[*slab]struct{}{}}
		r.classes[size] = s
	}
	if len(s.freePieces) == 0 {
		if ok, err := r.mapSlab(s); !ok {
			return piece{}, false, err
		}
	}
	p = s.freePieces[len(s.freePieces)-1]
	s.freePieces = s.freePieces[:len(s.freePieces)-1]
	p.slab.usedPieces++
	r.usedBytes += int64(size)
	return p, true, nil
}

// mapSlab maps a slab of at most slabBytes with as many pieces as the limit allows. It returns
// false if the limit allows none. Caller must hold r.mu.
func (r *arena) mapSlab(s *sizeClass) (bool, error) {
	want := max(slabBytes/s.size, 1) * s.size
	if r.mappedBytes+int64(want) > r.limit {
		r.unmapSlabs(s, int64(want))
	}
	if left := r.limit - r.mappedBytes; int64(want) > left {
		want = int(left) / s.size * s.size
	}
	if want <= 0 {
		return false, nil
	}
	mem, err := r.memory.Alloc(roundUp(want, buffers.PageSize))
	if err != nil {
		return false, robocache.ResourceLimit("loader", nil, "cannot allocate %d bytes for "+
			"stored frames", want).
			WithCause(err).
			WithHint("lower pool_size, cache_budget or memory_budget, or raise ulimit -v")
	}
	b := &slab{mem: mem}
	s.slabs[b] = struct{}{}
	r.mappedBytes += int64(len(mem))
	r.peakBytes = max(r.peakBytes, r.mappedBytes)
	for at := want - s.size; at >= 0; at -= s.size {
		s.freePieces = append(s.freePieces, piece{mem[at : at+s.size : at+s.size], b, s})
	}
	return true, nil
}

// unmapSlabs unmaps empty slabs of other classes until want more bytes fit below the limit. Caller
// must hold r.mu.
func (r *arena) unmapSlabs(keep *sizeClass, want int64) {
	for _, s := range r.classes {
		if s == keep {
			continue
		}
		for b := range s.slabs {
			if r.mappedBytes+want <= r.limit {
				return
			}
			if b.usedPieces == 0 {
				r.unmapSlab(s, b)
			}
		}
	}
}

// unmapSlab unmaps one empty slab. Caller must hold r.mu.
func (r *arena) unmapSlab(s *sizeClass, b *slab) {
	delete(s.slabs, b)
	s.freePieces = slices.DeleteFunc(s.freePieces, func(p piece) bool { return p.slab == b })
	r.mappedBytes -= int64(len(b.mem))
	r.memory.Free(b.mem)
}

// freePiece makes a piece available to the next allocation of its size.
func (r *arena) freePiece(p piece) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.slab.usedPieces--
	r.usedBytes -= int64(p.class.size)
	p.class.freePieces = append(p.class.freePieces, p)
}

// usageBytes returns the bytes of pieces in use, the mapped bytes, and the maximum of the mapped
// bytes so far.
func (r *arena) usageBytes() (used, mapped, peak int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usedBytes, r.mappedBytes, r.peakBytes
}

// unmapAll unmaps all slabs, including those with pieces in use.
func (r *arena) unmapAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.classes {
		for b := range s.slabs {
			r.memory.Free(b.mem)
		}
	}
	r.classes, r.mappedBytes, r.usedBytes = map[int]*sizeClass{}, 0, 0
}
