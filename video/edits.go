package video

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// edit presents the media times [from, to) beginning at start on the presentation timeline; all in
// track units.
type edit struct{ from, to, start int64 }

// readEdits gives the edits that show something; none means that everything is shown.
func (t *track) readEdits(p *parser, movieScale int64) ([]edit, error) {
	b := t.boxes["elst"]
	if !b.present() {
		return nil, nil
	}
	width := 12
	if len(b.data) > 0 && b.data[0] == 1 {
		width = 20
	}
	d, n, err := p.table(b, width)
	if err != nil {
		return nil, err
	}
	var edits []edit
	start := int64(0)
	for i := range n {
		e := d[width*i:]
		duration, media, rate := uint64(
			be.Uint32(e),
		), int64(
			int32(be.Uint32(e[4:])),
		), be.Uint32(
			e[width-4:],
		)
		if width == 20 {
			duration, media = be.Uint64(e), int64(be.Uint64(e[8:]))
		}
		length := rescale(duration, t.timescale, movieScale)
		switch {
		case media < -1 || media > 1<<61:
			return nil, b.malformed("edit %d begins at media time %d", i, media)
		case media >= 0 && rate != 1<<16:
			return nil, b.unsupported(
				"re-encode it",
				"edit %d plays at rate %g, not 1",
				i,
				float64(int32(rate))/65536,
			)
		case start+length > 1<<61:
			return nil, b.malformed("edit %d ends beyond any time", i)
		}
		if media >= 0 {
			to := media + length
			if duration == 0 && n == 1 || movieScale == 0 {
				to = math.MaxInt64 // a movie that was written before its length was known
			}
			edits = append(edits, edit{media, to, start})
		}
		start += length
	}
	if len(edits) == 0 && n > 0 { // nothing but a delay
		edits = append(edits, edit{math.MinInt64, math.MaxInt64, start})
	}
	return edits, nil
}

// rescale is round(v·to/from), bounded by 2^61.
func rescale(v uint64, to, from int64) int64 {
	if from <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(v, uint64(to))
	lo, carry := bits.Add64(lo, uint64(from)/2, 0)
	if hi += carry; hi >= uint64(from) {
		return 1 << 61
	}
	q, _ := bits.Div64(hi, lo, uint64(from))
	return int64(min(q, 1<<61))
}

// present numbers the frames: which samples are shown, in what order, and when.
//
// Lengths of edits are in the movie's units, which may be coarser: edits that overlap by no more
// than slack follow each other.
func (ix *Index) present(pts []int64, edits []edit, slack int64, elst box) error {
	if len(edits) == 0 {
		edits = []edit{{math.MinInt64, math.MaxInt64, 0}}
	}
	if len(edits) > 4096 {
		return elst.tooLarge("%d edits, limit 4096", len(edits))
	}
	byMedia := make([]*edit, len(edits))
	for i := range edits {
		byMedia[i] = &edits[i]
	}
	slices.SortFunc(byMedia, func(a, b *edit) int { return cmp.Compare(a.from, b.from) })
	for i, next := range byMedia[1:] {
		e := byMedia[i]
		if next.from < e.to-slack {
			return elst.unsupported(
				"re-encode it",
				"the edit list shows media time %d twice",
				next.from,
			)
		}
		e.to = min(e.to, next.from)
	}
	byTime := make([]uint32, len(pts))
	for d := range byTime {
		byTime[d] = uint32(d)
	}
	if !slices.IsSorted(pts) {
		slices.SortStableFunc(byTime, func(a, b uint32) int { return cmp.Compare(pts[a], pts[b]) })
	}
	at := func(t int64) int {
		return sort.Search(len(byTime), func(i int) bool { return pts[byTime[i]] >= t })
	}
	perm := make([]uint32, 0, len(pts))
	shown := make([]int64, 0, len(pts))
	gap := int64(-1)
	for _, e := range edits { // in presentation order
		from, to, origin := 0, len(byTime), int64(0)
		if e.from != math.MinInt64 {
			from, to, origin = at(e.from), max(at(e.from), at(e.to)), e.from
		}
		if gap < 0 && from < to {
			// An edit that begins between two frames shows its first one at once, as the decoders
			// of the field have it: by the letter of the standard it would come late by the rest of
			// a frame that nobody shows.
			gap = 0
			if elst.present() {
				gap = pts[byTime[from]] - max(e.from, 0)
			}
		}
		for _, d := range byTime[from:to] {
			perm = append(perm, d)
			shown = append(shown, pts[d]-origin+e.start-gap)
		}
	}
	ix.order, ix.edits = packOrder(perm), len(edits)
	if len(edits) > 1 {
		ix.shown = packTicks(shown)
	} else if len(perm) > 0 {
		ix.shift = shown[0] - pts[perm[0]]
	}
	return nil
}
