package video

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
)

const (
	maxMediaTime = 1 << 61 // the sum of two such times fits int64
	normalRate   = 1 << 16 // of an edit, with 16 fractional bits
)

// edit presents the media times [from, to) at start on the presentation timeline. All are in track
// units.
type edit struct{ from, to, start int64 }

// readEdits returns the edits that present media. If there are none, all samples are presented.
func (t *track) readEdits(p *boxParser, movieScale int64) ([]edit, error) {
	b := t.boxes["elst"]
	if !b.isPresent() {
		return nil, nil
	}
	// An entry has the duration in movie units, the media time (-1 for a delay), and the rate.
	width := 12
	isVersion1 := len(b.data) > 0 && b.data[0] == 1
	if isVersion1 { // times of 64 bits
		width = 20
	}
	d, n, err := p.splitTable(b, width)
	if err != nil {
		return nil, err
	}
	var edits []edit
	start := int64(0)
	for i := range n {
		e := d[width*i:]
		duration, media := uint64(be.Uint32(e)), int64(int32(be.Uint32(e[4:])))
		rate := be.Uint32(e[width-4:])
		if isVersion1 {
			duration, media = be.Uint64(e), int64(be.Uint64(e[8:]))
		}
		length := rescaleTime(duration, t.timescale, movieScale)
		switch {
		case media < -1 || media > maxMediaTime:
			return nil, b.malformed("edit %d begins at media time %d", i, media)
		case media >= 0 && rate != normalRate:
			return nil, b.unsupported(
				"re-encode it",
				"edit %d plays at rate %g, not 1",
				i,
				float64(int32(rate))/normalRate,
			)
		case start+length > maxMediaTime:
			return nil, b.malformed("edit %d ends beyond any time", i)
		}
		if media >= 0 {
			to := media + length
			if duration == 0 && n == 1 || movieScale == 0 {
				to = math.MaxInt64 // the duration was not known when the movie was written
			}
			edits = append(edits, edit{media, to, start})
		}
		start += length
	}
	if len(edits) == 0 && n > 0 { // only an empty edit: a delay
		edits = append(edits, edit{math.MinInt64, math.MaxInt64, start})
	}
	return edits, nil
}

// rescaleTime returns round(v·to/from), at most maxMediaTime.
func rescaleTime(v uint64, to, from int64) int64 {
	if from <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(v, uint64(to))
	lo, carry := bits.Add64(lo, uint64(from)/2, 0)
	if hi += carry; hi >= uint64(from) {
		return maxMediaTime
	}
	q, _ := bits.Div64(hi, lo, uint64(from))
	return int64(min(q, maxMediaTime))
}

// separateEdits shortens edits so that none overlaps another in media time. It returns an error if
// two overlap by more than slack. A smaller overlap has no meaning: edit lengths are in movie units,
// which may be coarser than track units.
func separateEdits(edits []edit, slack int64, elst box) error {
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
	return nil
}

// numberFrames determines which samples are presented, in which order and when. Edits that overlap
// by at most slack count as consecutive.
func (ix *Index) numberFrames(pts []int64, edits []edit, slack int64, elst box) error {
	if len(edits) == 0 {
		edits = []edit{{math.MinInt64, math.MaxInt64, 0}}
	}
	if len(edits) > 4096 {
		return elst.tooLarge("%d edits, limit 4096", len(edits))
	}
	if err := separateEdits(edits, slack, elst); err != nil {
		return err
	}
	byTime := make([]uint32, len(pts)) // decode indexes by presentation time
	for d := range byTime {
		byTime[d] = uint32(d)
	}
	if !slices.IsSorted(pts) {
		slices.SortStableFunc(byTime, func(a, b uint32) int { return cmp.Compare(pts[a], pts[b]) })
	}
	firstAtOrAfter := func(t int64) int { // position in byTime
		return sort.Search(len(byTime), func(i int) bool { return pts[byTime[i]] >= t })
	}
	perm := make([]uint32, 0, len(pts)) // decode indexes by frame number
	shown := make([]int64, 0, len(pts)) // presentation times by frame number
	gap := int64(-1)                    // subtracted from all presentation times; -1: not known yet
	for _, e := range edits {           // in presentation order
		from, to, origin := 0, len(byTime), int64(0)
		isWholeTrack := e.from == math.MinInt64
		if !isWholeTrack {
			from, origin = firstAtOrAfter(e.from), e.from
			to = max(from, firstAtOrAfter(e.to))
		}
		if gap < 0 && from < to {
			// If an edit begins between two frames, its first frame is presented at once, as common
			// decoders do. The standard would delay it by the rest of the hidden frame before it.
			gap = 0
			if elst.isPresent() {
				gap = pts[byTime[from]] - max(e.from, 0)
			}
		}
		for _, d := range byTime[from:to] {
			perm = append(perm, d)
			shown = append(shown, pts[d]-origin+e.start-gap)
		}
	}
	ix.order, ix.editCount = packOrder(perm), len(edits)
	if len(edits) > 1 {
		ix.shown = packTimes(shown)
	} else if len(perm) > 0 {
		ix.shift = shown[0] - pts[perm[0]]
	}
	return nil
}
