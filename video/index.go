package video

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// Index is the sample table of one video track. It is immutable and safe for concurrent use.
//
// Samples have two numberings. A decode index d counts stored samples in the order of the file's
// tables. A frame number (ordinal) k counts presented frames in presentation order.
type Index struct {
	timescale   int64
	samples     int // number of samples
	sizes       []uint32
	fixedSize   uint32 // size of all samples if sizes is nil
	offsetLow   []uint32
	offsetHigh  []uint16  // nil if the file is smaller than 4 GiB
	pts, dts    timeTable // media times, by decode index
	sameTimes   bool      // pts and dts are equal
	order       frameOrder
	shift       int64     // presentation time − media time, if there is at most one edit
	shown       timeTable // presentation times by frame number, if several edits do
	editCount   int
	syncSamples []uint32
	allSync     bool
	entryRuns   []entryRun
	entries     []SampleEntry
	rawStsd     [][]byte
	// decode index of the first sample that is not completely in the file; equal to the number of
	// samples if all of them are
	firstCut int
	whole    int // see Whole
}

// Sample describes one stored sample.
type Sample struct {
	Offset int64
	Size   int
	// PTS and DTS are media times in Timescale units, before the edit list. Packets and frames are
	// matched by them.
	PTS, DTS int64
	Sync     bool
	Entry    int // index into Entries
}

// entryRun is a run of samples with one sample entry. It ends where the next run begins.
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

// NumFrames returns the number of presented frames.
func (ix *Index) NumFrames() int { return ix.order.n }

// All returns the numbers of all frames.
func (ix *Index) All() []int {
	all := make([]int, ix.NumFrames())
	for k := range all {
		all[k] = k
	}
	return all
}

// NumSamples returns the number of stored samples. It exceeds NumFrames if an edit list hides
// samples.
func (ix *Index) NumSamples() int { return ix.samples }

// Whole returns the number of leading frames that can be read: their bytes, and those of all
// samples stored before them, are in the file. It is NumFrames, unless the file is truncated and
// Limits.AllowTruncated was set.
func (ix *Index) Whole() int { return ix.whole }

// Timescale returns the number of PTS units per second.
func (ix *Index) Timescale() int64 { return ix.timescale }

// Entries returns the sample entries. The slice belongs to the index.
func (ix *Index) Entries() []SampleEntry { return ix.entries }

// Sample returns the stored sample with decode index d, 0 ≤ d < NumSamples.
func (ix *Index) Sample(d int) Sample {
	s := Sample{
		Offset: int64(ix.offsetLow[d]),
		Size:   int(ix.fixedSize),
		PTS:    ix.pts.timeAt(d),
		DTS:    ix.dts.timeAt(d),
		Sync:   ix.isSync(d),
		Entry:  ix.entryOf(d),
	}
	if ix.offsetHigh != nil {
		s.Offset |= int64(ix.offsetHigh[d]) << 32
	}
	if ix.sizes != nil {
		s.Size = int(ix.sizes[d])
	}
	return s
}

// isSync reports whether sample d is a sync sample.
func (ix *Index) isSync(d int) bool {
	if ix.allSync {
		return true
	}
	_, found := slices.BinarySearch(ix.syncSamples, uint32(d))
	return found
}

// entryOf returns the number of the sample entry of sample d.
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

// DecodeIndex returns the decode index of a frame, 0 ≤ ordinal < NumFrames.
func (ix *Index) DecodeIndex(ordinal int) int { return ix.order.decodeIndex(ordinal) }

// PTS returns the time of a frame on the presentation timeline, after the edit list, in Timescale
// units.
func (ix *Index) PTS(ordinal int) int64 {
	if ix.editCount > 1 {
		return ix.shown.timeAt(ordinal)
	}
	return ix.pts.timeAt(ix.order.decodeIndex(ordinal)) + ix.shift
}

// TimeNS returns the time of a frame in nanoseconds, rounded to the nearest.
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

// Governing returns the decode index at which decoding must start to produce a frame: the last sync
// sample in decode order that is neither decoded nor presented after the frame. A rule by decode
// order alone gives only 61 of 120 frames of an open-GOP file correctly. If there is no such sync
// sample, because the file begins inside a GOP, it returns the nearest earlier sync sample, or 0.
func (ix *Index) Governing(ordinal int) int {
	d := ix.order.decodeIndex(ordinal)
	if ix.allSync {
		return d
	}
	t := ix.pts.timeAt(d)
	behind := func(i int) bool { return int(ix.syncSamples[i]) > d }
	last := sort.Search(len(ix.syncSamples), behind) - 1 // last sync sample ≤ d in decode order
	for i := last; i >= 0; i-- {
		if s := int(ix.syncSamples[i]); ix.pts.timeAt(s) <= t {
			return s
		}
	}
	if last >= 0 {
		return int(ix.syncSamples[last])
	}
	return 0
}

// MemoryBytes returns the memory of the index.
func (ix *Index) MemoryBytes() int64 {
	n := int64(400)
	n += 4 * int64(len(ix.sizes)+len(ix.offsetLow)+len(ix.syncSamples))
	n += 2*int64(len(ix.offsetHigh)) + 8*int64(len(ix.entryRuns))
	n += ix.pts.memoryBytes() + ix.shown.memoryBytes() + ix.order.memoryBytes()
	if !ix.sameTimes {
		n += ix.dts.memoryBytes()
	}
	for i := range ix.entries {
		n += 128 + int64(len(ix.entries[i].Extradata)+len(ix.rawStsd[i]))
	}
	return n
}

// timeTable is a sequence of times in the smallest of three forms: an arithmetic sequence, 32-bit
// offsets, or 64-bit values.
type timeTable struct {
	base, step int64
	offsets    []uint32
	wide       []int64
}

// timeAt returns the i-th time of the sequence.
func (t *timeTable) timeAt(i int) int64 {
	switch {
	case t.offsets != nil:
		return t.base + int64(t.offsets[i])
	case t.wide != nil:
		return t.wide[i]
	}
	return t.base + int64(i)*t.step
}

func (t *timeTable) memoryBytes() int64 { return 4*int64(len(t.offsets)) + 8*int64(len(t.wide)) }

// packTimes returns v in its smallest form. It takes ownership of v.
func packTimes(v []int64) timeTable {
	if len(v) == 0 {
		return timeTable{}
	}
	t, even := timeTable{base: v[0]}, true
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
		return timeTable{wide: v}
	}
	t = timeTable{base: lo, offsets: make([]uint32, len(v))}
	for i, x := range v {
		t.offsets[i] = uint32(x - lo)
	}
	return t
}

// frameOrder maps frame numbers to decode indexes, as a start and small displacements.
type frameOrder struct {
	n, first int
	near     []int16  // decode index = first + ordinal + displacement
	far      []uint32 // decode indexes, if a displacement does not fit into 16 bits
}

// decodeIndex returns the decode index of frame k.
func (o *frameOrder) decodeIndex(k int) int {
	switch {
	case o.near != nil:
		return o.first + k + int(o.near[k])
	case o.far != nil:
		return int(o.far[k])
	}
	return o.first + k
}

func (o *frameOrder) memoryBytes() int64 { return 2*int64(len(o.near)) + 4*int64(len(o.far)) }

// packOrder returns perm in its smallest form. It takes ownership of perm.
func packOrder(perm []uint32) frameOrder {
	o := frameOrder{n: len(perm)}
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
