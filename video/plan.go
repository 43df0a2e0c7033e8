package video

import (
	"cmp"
	"slices"
)

// Group is a run of packets and the frames wanted from it. To decode a group: flush, send the
// packets Start..End in decode order, drain, and keep the frames Ordinals. The drain is necessary
// because a frame may still be in the decoder after its packet was sent.
type Group struct {
	Start, End int   // decode indexes, both inclusive
	Ordinals   []int // frame numbers, ascending, without duplicates
}

// Cost returns the number of packets to send.
func (g Group) Cost() int { return g.End - g.Start + 1 }

// Plan returns the packets to send for a set of frames, as groups by governing sync sample. Groups
// are in ascending order and send each packet at most once. Groups that would share packets are
// merged. Adjacent groups stay separate, and a decoder can continue from one to the next without a
// flush.
//
// Frame numbers that the file does not have are not dropped. They form a last group without packets
// (Cost 0), which no decoder can serve.
func Plan(ix *Index, ordinals []int) []Group {
	var p Planner
	return p.Plan(ix, ordinals)
}

// Planner computes plans in buffers that it reuses, so that it stops allocating after a few calls.
// It must be used by one goroutine at a time.
type Planner struct {
	wantedFrames []wantedFrame
	ordinals     []int
	groups       []Group
}

// wantedFrame is a frame and the packets that it needs: those from the governing sync sample start
// to its own packet decode.
type wantedFrame struct{ start, decode, ordinal int }

// Plan is like the function Plan. The result is valid until the next call.
func (p *Planner) Plan(ix *Index, ordinals []int) []Group {
	p.wantedFrames, p.ordinals, p.groups = p.wantedFrames[:0], p.ordinals[:0], p.groups[:0]
	p.wantedFrames = slices.Grow(p.wantedFrames, len(ordinals))
	// The groups alias p.ordinals, so it must not be reallocated.
	p.ordinals = slices.Grow(p.ordinals, len(ordinals))
	outside := ix.NumSamples()
	for _, k := range ordinals {
		if k < 0 || k >= ix.NumFrames() {
			p.wantedFrames = append(p.wantedFrames, wantedFrame{outside, outside - 1, k})
			continue
		}
		p.wantedFrames = append(p.wantedFrames, wantedFrame{ix.Governing(k), ix.DecodeIndex(k), k})
	}
	slices.SortFunc(p.wantedFrames, func(a, b wantedFrame) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.ordinal, b.ordinal))
	})
	for i, w := range p.wantedFrames {
		if i > 0 && w.ordinal == p.wantedFrames[i-1].ordinal {
			continue
		}
		if n := len(p.groups); n > 0 {
			g := &p.groups[n-1]
			// If decoding must start inside the packets of the previous group, extend that group.
			// This is cheaper than sending the packets again. Another sample entry needs another
			// decoder, and therefore a new group.
			if w.start == g.Start ||
				w.start <= g.End && ix.entryOf(w.start) == ix.entryOf(g.Start) {
				g.End = max(g.End, w.decode)
				// The ordinals of the last group are the last of p.ordinals.
				p.ordinals = append(p.ordinals, w.ordinal)
				end := len(p.ordinals)
				g.Ordinals = p.ordinals[end-len(g.Ordinals)-1 : end : end]
				continue
			}
		}
		p.ordinals = append(p.ordinals, w.ordinal)
		n := len(p.ordinals)
		p.groups = append(p.groups, Group{w.start, w.decode, p.ordinals[n-1 : n : n]})
	}
	for i := range p.groups {
		if !slices.IsSorted(p.groups[i].Ordinals) { // merged groups may interleave
			slices.Sort(p.groups[i].Ordinals)
		}
	}
	return p.groups
}
