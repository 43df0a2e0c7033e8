package video

import (
	"cmp"
	"slices"
)

// Group is a run of packets and the frames wanted from it: flush, send the packets Start..End in
// decode order, drain, keep Ordinals. The drain is needed: a frame may still be inside the decoder
// when its packet has been sent.
type Group struct {
	Start, End int   // decode indexes, both included
	Ordinals   []int // frame numbers, ascending, each once
}

// Cost is the number of packets to be sent.
func (g Group) Cost() int { return g.End - g.Start + 1 }

// Plan says which packets to send for a set of frames: groups by governing sync sample, forward
// only, each packet at most once. Groups that would send a packet twice are one group; groups that
// only touch stay two, and a decoder may go on from one to the next without a flush.
//
// A frame number that the file does not have is neither dropped nor a panic: all such form a last
// group without packets (Cost 0), which no decoder can serve.
func Plan(ix *Index, ordinals []int) []Group {
	var p Planner
	return p.Plan(ix, ordinals)
}

// Planner makes plans in buffers that it keeps: after a few calls none allocates. One goroutine at
// a time.
type Planner struct {
	wants    []want
	ordinals []int
	groups   []Group
}

type want struct{ start, decode, ordinal int }

// Plan is the function Plan; what it gives is valid until the next call.
func (p *Planner) Plan(ix *Index, ordinals []int) []Group {
	p.wants, p.ordinals, p.groups = p.wants[:0], p.ordinals[:0], p.groups[:0]
	p.wants = slices.Grow(p.wants, len(ordinals))
	p.ordinals = slices.Grow(p.ordinals, len(ordinals)) // groups point into it: it must not move
	outside := ix.NumSamples()
	for _, k := range ordinals {
		if k < 0 || k >= ix.NumFrames() {
			p.wants = append(p.wants, want{outside, outside - 1, k})
			continue
		}
		p.wants = append(p.wants, want{ix.Governing(k), ix.DecodeIndex(k), k})
	}
	slices.SortFunc(
		p.wants,
		func(a, b want) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.ordinal, b.ordinal)) },
	)
	for i, w := range p.wants {
		if i > 0 && w.ordinal == p.wants[i-1].ordinal {
			continue
		}
		if n := len(p.groups); n > 0 {
			g := &p.groups[n-1]
			// A start inside the packets of the group before: going on is cheaper than sending them
			// again. Another sample entry needs another decoder.
			if w.start == g.Start ||
				w.start <= g.End && ix.entryOf(w.start) == ix.entryOf(g.Start) {
				g.End = max(g.End, w.decode)
				p.ordinals = append(p.ordinals, w.ordinal)
				g.Ordinals = p.ordinals[len(p.ordinals)-len(g.Ordinals)-1 : len(p.ordinals) : len(p.ordinals)]
				continue
			}
		}
		p.ordinals = append(p.ordinals, w.ordinal)
		n := len(p.ordinals)
		p.groups = append(p.groups, Group{w.start, w.decode, p.ordinals[n-1 : n : n]})
	}
	for i := range p.groups {
		if !slices.IsSorted(p.groups[i].Ordinals) { // joined groups may interleave
			slices.Sort(p.groups[i].Ordinals)
		}
	}
	return p.groups
}
