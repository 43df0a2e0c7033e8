package rlds

import (
	"context"

	"github.com/goatnote-inc/robocache"
)

// marks are places in a compressed shard from which it can be read: so that a record costs what lies between it and the mark before it, and
// not all of the shard before it. They are thinned as the shard goes on, and never more than most.
type marks struct {
	list    []mark
	spacing int64 // of unpacked bytes
	most    int
	members int
}

type mark struct {
	bit    int64  // in the file: of a block's head, or of a member's first byte
	out    int64  // unpacked bytes before it
	window []byte // what a distance may reach
	head   bool
}

const markSpacing = 1 << 20

// marksEach is how many marks a shard may have, of so many: together they take a quarter of the room for the index, for a data set must open
// also where there are too many shards to have any.
func marksEach(room int64, shards int) int {
	return int(min(64, room/4/deflateReach/int64(max(shards, 1))))
}

func (m *marks) wants(out int64) bool {
	if m == nil || m.most == 0 || m.members > 1 || out == 0 {
		return false
	}
	return len(m.list) == 0 || out-m.list[len(m.list)-1].out >= m.spacing
}

func (m *marks) add(k mark) {
	m.list = append(m.list, k)
	if len(m.list) <= m.most {
		return
	}
	// Every second one goes, and from here on they lie twice as far apart.
	kept := m.list[:0]
	for i := range m.list {
		if i%2 == 1 {
			kept = append(kept, m.list[i])
		}
	}
	clear(m.list[len(kept):])
	m.list, m.spacing = kept, 2*m.spacing
}

func (m *marks) block(bit, out int64, window []byte) { m.add(mark{bit: bit, out: out, window: window}) }

// member: of a file of several, each begins anew; only their beginnings are marks, for a block's reader ends with its member.
func (m *marks) member(at, out int64) {
	if m == nil || m.most == 0 {
		return
	}
	if m.members++; m.members == 2 {
		m.list = nil
	}
	if m.members > 1 && (len(m.list) == 0 || out-m.list[len(m.list)-1].out >= m.spacing) {
		m.add(mark{bit: at * 8, out: out, head: true})
	}
}

func (m *marks) bytes() (n int64) {
	if m != nil {
		for i := range m.list {
			n += int64(len(m.list[i].window)) + 64
		}
	}
	return n
}

// before is the last mark that is not beyond an unpacked offset; nil: the start of the file.
func (m *marks) before(out int64) *mark {
	var best *mark
	if m != nil {
		for i := range m.list {
			if m.list[i].out <= out {
				best = &m.list[i]
			}
		}
	}
	return best
}

// openMarked gives a shard's records from a mark on; nil is the start of the file. The shard's own check sum is compared only where all of a member
// goes by: each record has one.
func openMarked(ctx context.Context, r robocache.Ranged, p packing, limit int64, k *mark) (*stream, error) {
	s := &stream{src: &fileReader{ctx: ctx, r: r}, limit: limit}
	z := newInflater(s.src, p, nil)
	s.r = z
	if k == nil {
		return s, nil
	}
	s.pos, s.src.off = k.out, k.bit/8
	return s, s.fault(z.resume(k))
}
