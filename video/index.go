package video

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// Index is the sample table of one video track: immutable, safe for many goroutines.
//
// Two numberings: a decode index d counts stored samples in the order of the file's tables; a frame
// number (ordinal) k counts presented frames in presentation order.
type Index struct {
	timescale int64
	n         int // samples
	sizes     []uint32
	fixedSize uint32 // where sizes is nil
	low       []uint32
	high      []uint16 // nil in files below 4 GiB
	pts, dts  ticks    // media time, by decode index
	sameTimes bool     // pts and dts are one
	order     order
	shift     int64 // presentation time − media time, where one edit (or none) shows the track
	shown     ticks // presentation time by frame number, where several do
	edits     int
	sync      []uint32
	allSync   bool
	entryRuns []entryRun
	entries   []SampleEntry
	rawStsd   [][]byte
	cutAt     int // first decode index that is not whole in the file; n where all are
	whole     int
}

// Sample is one stored sample.
type Sample struct {
	Offset int64
	Size   int
	// PTS and DTS are media times in Timescale units, before the edit list: packets and frames are
	// matched by them.
	PTS, DTS int64
	Sync     bool
	Entry    int // into Entries
}

type entryRun struct {
	first uint32 // decode index
	entry uint16
}

// ReadIndex reads the sample index of the first video track.
func ReadIndex(ctx context.Context, f robocache.Ranged, lim Limits) (_ *Index, err error) {
	lim = lim.orDefaults()
	moov, err := readMoov(ctx, f, lim)
	if err != nil {
		return nil, err
	}
	return parseMoov(moov, f.Size(), lim)
}

// NumFrames is the number of presented frames.
func (ix *Index) NumFrames() int { return ix.order.n }

// All lists the numbers of all frames.
func (ix *Index) All() []int {
	all := make([]int, ix.NumFrames())
	for k := range all {
		all[k] = k
	}
	return all
}

// NumSamples is the number of stored samples; more than NumFrames where an edit list hides some.
func (ix *Index) NumSamples() int { return ix.n }

// Whole is the number of leading frames whose bytes, and those of all samples stored before them,
// are in the file: NumFrames, unless the file is cut and Limits.AllowTruncated was set.
func (ix *Index) Whole() int { return ix.whole }

// Timescale is the number of PTS units in a second.
func (ix *Index) Timescale() int64 { return ix.timescale }

// Entries gives the sample entries. They belong to the index.
func (ix *Index) Entries() []SampleEntry { return ix.entries }

// Sample gives the stored sample with decode index d, 0 ≤ d < NumSamples.
func (ix *Index) Sample(d int) Sample {
	s := Sample{
		Offset: int64(ix.low[d]),
		Size:   int(ix.fixedSize),
		PTS:    ix.pts.at(d),
		DTS:    ix.dts.at(d),
		Sync:   ix.isSync(d),
		Entry:  ix.entryOf(d),
	}
	if ix.high != nil {
		s.Offset |= int64(ix.high[d]) << 32
	}
	if ix.sizes != nil {
		s.Size = int(ix.sizes[d])
	}
	return s
}

func (ix *Index) isSync(d int) bool {
	if ix.allSync {
		return true
	}
	_, found := slices.BinarySearch(ix.sync, uint32(d))
	return found
}

func (ix *Index) entryOf(d int) int {
	if len(ix.entryRuns) == 1 {
		return int(ix.entryRuns[0].entry)
	}
	i := sort.Search(len(ix.entryRuns), func(i int) bool { return int(ix.entryRuns[i].first) > d })
	if i == 0 {
		return 0
	}
	return int(ix.entryRuns[i-1].entry)
}

// DecodeIndex gives the decode index of a frame, 0 ≤ ordinal < NumFrames.
func (ix *Index) DecodeIndex(ordinal int) int { return ix.order.at(ordinal) }

// PTS gives the time of a frame on the presentation timeline, the edit list applied, in Timescale
// units.
func (ix *Index) PTS(ordinal int) int64 {
	if ix.edits > 1 {
		return ix.shown.at(ordinal)
	}
	return ix.pts.at(ix.order.at(ordinal)) + ix.shift
}

// TimeNS gives the time of a frame in nanoseconds, rounded to the nearest.
func (ix *Index) TimeNS(ordinal int) int64 {
	t, s := ix.PTS(ordinal), ix.timescale
	sec, frac := t/s, t%s
	if frac < 0 {
		sec, frac = sec-1, frac+s
	}
	if sec > math.MaxInt64/1_000_000_000-1 {
		return math.MaxInt64
	}
	return sec*1_000_000_000 + (frac*1_000_000_000+s/2)/s
}

// Governing gives the decode index of the sample that decoding must begin at to get a frame: the
// last sync sample in decode order that is neither decoded nor presented after it. By decode order
// alone, 61 of 120 frames of an open-GOP file come right. Where a file has none (it begins inside a
// GOP), the nearest earlier sync sample, or 0.
func (ix *Index) Governing(ordinal int) int {
	d := ix.order.at(ordinal)
	if ix.allSync {
		return d
	}
	t := ix.pts.at(d)
	last := sort.Search(len(ix.sync), func(i int) bool { return int(ix.sync[i]) > d }) - 1
	for i := last; i >= 0; i-- {
		if s := int(ix.sync[i]); ix.pts.at(s) <= t {
			return s
		}
	}
	if last >= 0 {
		return int(ix.sync[last])
	}
	return 0
}

// MemoryBytes is what the index holds.
func (ix *Index) MemoryBytes() int64 {
	n := int64(
		400,
	) + 4*int64(
		len(ix.sizes)+len(ix.low)+len(ix.sync),
	) + 2*int64(
		len(ix.high),
	) + 8*int64(
		len(ix.entryRuns),
	)
	n += ix.pts.bytes() + ix.shown.bytes() + ix.order.bytes()
	if !ix.sameTimes {
		n += ix.dts.bytes()
	}
	for i := range ix.entries {
		n += 128 + int64(len(ix.entries[i].Extradata)+len(ix.rawStsd[i]))
	}
	return n
}

// ticks is a sequence of times, in the smallest of three forms: an arithmetic sequence, 32-bit
// offsets, 64-bit.
type ticks struct {
	base, step int64
	rel        []uint32
	wide       []int64
}

func (t *ticks) at(i int) int64 {
	switch {
	case t.rel != nil:
		return t.base + int64(t.rel[i])
	case t.wide != nil:
		return t.wide[i]
	}
	return t.base + int64(i)*t.step
}

func (t *ticks) bytes() int64 { return 4*int64(len(t.rel)) + 8*int64(len(t.wide)) }

// packTicks takes over v.
func packTicks(v []int64) ticks {
	if len(v) == 0 {
		return ticks{}
	}
	t, even := ticks{base: v[0]}, true
	if len(v) > 1 {
		t.step = v[1] - v[0]
	}
	lo, hi := v[0], v[0]
	for i, x := range v {
		even = even && x == v[0]+int64(i)*t.step
		lo, hi = min(lo, x), max(hi, x)
	}
	switch {
	case even:
		return t
	case uint64(hi)-uint64(lo) > math.MaxUint32:
		return ticks{wide: v}
	}
	t = ticks{base: lo, rel: make([]uint32, len(v))}
	for i, x := range v {
		t.rel[i] = uint32(x - lo)
	}
	return t
}

// order maps frame numbers to decode indexes as a start and small displacements.
type order struct {
	n, first int
	near     []int16  // decode index = first + ordinal + near
	far      []uint32 // decode index, where a displacement does not fit
}

func (o *order) at(k int) int {
	switch {
	case o.near != nil:
		return o.first + k + int(o.near[k])
	case o.far != nil:
		return int(o.far[k])
	}
	return o.first + k
}

func (o *order) bytes() int64 { return 2*int64(len(o.near)) + 4*int64(len(o.far)) }

// packOrder takes over perm.
func packOrder(perm []uint32) order {
	o := order{n: len(perm)}
	if len(perm) == 0 {
		return o
	}
	o.first = int(perm[0])
	lo, hi := 0, 0
	for k, d := range perm {
		x := int(d) - o.first - k
		lo, hi = min(lo, x), max(hi, x)
	}
	switch {
	case lo == 0 && hi == 0:
	case lo >= math.MinInt16 && hi <= math.MaxInt16:
		o.near = make([]int16, len(perm))
		for k, d := range perm {
			o.near[k] = int16(int(d) - o.first - k)
		}
	default:
		o.far = perm
	}
	return o
}
