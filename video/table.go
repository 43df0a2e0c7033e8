package video

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// track holds the boxes of one trak that matter here.
type track struct {
	off       int64
	handler   string
	timescale int64
	matrix    [4]int64 // a, b, c, d of tkhd, 16.16
	elst      box
	stsd, stsz, stz2, stsc, stco, co64, stts, ctts,
	stss box
}

// parseMoov finds the first video track and builds its index.
func parseMoov(moov box, fileSize int64, lim Limits) (*Index, error) {
	var movieScale int64
	movie := [4]int64{1 << 16, 0, 0, 1 << 16}
	var video *track
	err := children("moov", moov.data, moov.off+8, func(b box) error {
		switch b.kind {
		case "mvhd":
			version, _, d, err := b.full(96)
			if err != nil {
				return err
			}
			at, matrix := 8, 32 // times 4 + 4, scale 4, duration 4, rate 4, volume 2, reserved 10
			if version == 1 {
				at, matrix = 16, 44
			}
			movieScale = int64(be.Uint32(d[at:]))
			movie = matrixAt(d[matrix:], movie)
		case "mvex":
			// The tables hold the first fragment or nothing: reading them alone would be a shorter list.
			return unsupported(b.kind, b.off, remuxHint, "fragmented mp4: samples are listed in moof boxes")
		case "trak":
			if video != nil {
				return nil
			}
			t, err := parseTrak(b)
			if err != nil {
				return err
			}
			if t.handler == "vide" {
				video = t
			}
		case "cmov":
			return unsupported(b.kind, b.off, remuxHint, "compressed movie header")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if video == nil {
		return nil, malformed(moov.kind, moov.off, "no video track")
	}
	ix, err := video.build(movieScale, fileSize, lim)
	if err != nil {
		return nil, err
	}
	rotation, ok := rotationOf(video.matrix, movie)
	if !ok {
		return nil, unsupported("tkhd", video.off, "re-encode it upright", "the display matrix %v is no rotation by quarter turns", video.matrix)
	}
	for i := range ix.entries {
		ix.entries[i].Rotation = rotation
	}
	return ix, nil
}

func matrixAt(d []byte, fallback [4]int64) [4]int64 {
	if len(d) < 20 {
		return fallback
	}
	i32 := func(i int) int64 { return int64(int32(be.Uint32(d[4*i:]))) }
	return [4]int64{i32(0), i32(1), i32(3), i32(4)}
}

// rotationOf gives the quarter turns, clockwise, that track and movie matrix together ask for. Scaling is the display's business.
func rotationOf(track, movie [4]int64) (degrees int, ok bool) {
	sign := func(x int64) int64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}
	var t, m [4]int64
	for i := range t {
		t[i], m[i] = sign(track[i]), sign(movie[i])
	}
	zero := [4]int64{}
	if t == zero {
		t = [4]int64{1, 0, 0, 1}
	}
	if m == zero {
		m = [4]int64{1, 0, 0, 1}
	}
	r := [4]int64{t[0]*m[0] + t[1]*m[2], t[0]*m[1] + t[1]*m[3], t[2]*m[0] + t[3]*m[2], t[2]*m[1] + t[3]*m[3]}
	switch r {
	case [4]int64{1, 0, 0, 1}:
		return 0, true
	case [4]int64{0, 1, -1, 0}:
		return 90, true
	case [4]int64{-1, 0, 0, -1}:
		return 180, true
	case [4]int64{0, -1, 1, 0}:
		return 270, true
	}
	return 0, false
}

// parseTrak gathers the boxes of a track. Of repeated boxes the first counts.
func parseTrak(trak box) (*track, error) {
	t := &track{off: trak.off, matrix: [4]int64{1 << 16, 0, 0, 1 << 16}}
	keep := func(dst *box, b box) {
		if !dst.present() {
			*dst = b
		}
	}
	var visit func(b box) error
	visit = func(b box) error {
		switch b.kind {
		case "mdia", "minf", "stbl", "edts":
			return children(b.kind, b.data, b.off+8, visit)
		case "tkhd":
			version, _, d, err := b.full(80)
			if err != nil {
				return err
			}
			at := 36 // times 8, id 4, reserved 4, duration 4, reserved 8, layer, group, volume, reserved 2 each
			if version == 1 {
				at = 48
			}
			if len(d) < at+36 {
				return malformed(b.kind, b.off, "%d bytes: too short", len(b.data))
			}
			t.matrix = matrixAt(d[at:], t.matrix)
		case "mdhd":
			version, _, d, err := b.full(20)
			if err != nil {
				return err
			}
			at := 8
			if version == 1 {
				at = 16
			}
			t.timescale = int64(be.Uint32(d[at:]))
		case "hdlr":
			_, _, d, err := b.full(8)
			if err != nil {
				return err
			}
			if t.handler == "" { // QuickTime has a second one, in minf, for the data handler
				t.handler = string(d[4:8])
			}
		case "elst":
			keep(&t.elst, b)
		case "stsd":
			keep(&t.stsd, b)
		case "stsz":
			keep(&t.stsz, b)
		case "stz2":
			keep(&t.stz2, b)
		case "stsc":
			keep(&t.stsc, b)
		case "stco":
			keep(&t.stco, b)
		case "co64":
			keep(&t.co64, b)
		case "stts":
			keep(&t.stts, b)
		case "ctts":
			keep(&t.ctts, b)
		case "stss":
			keep(&t.stss, b)
		}
		return nil
	}
	return t, children("trak", trak.data, trak.off+8, visit)
}

func (t *track) build(movieScale, fileSize int64, lim Limits) (*Index, error) {
	if t.timescale <= 0 {
		return nil, malformed("mdhd", t.off, "the timescale is 0")
	}
	ix := &Index{timescale: t.timescale}
	for _, m := range []struct {
		name string
		b    box
	}{{"stsd", t.stsd}, {"stts", t.stts}} {
		if !m.b.present() {
			return nil, malformed("trak", t.off, "the video track has no %s box", m.name)
		}
	}
	var err error
	if ix.entries, ix.rawStsd, err = parseStsd(t.stsd, lim); err != nil {
		return nil, err
	}
	if err = t.readSizes(ix, fileSize, lim); err != nil {
		return nil, err
	}
	if ix.n == 0 {
		return ix, nil
	}
	if err = t.readOffsets(ix, fileSize, lim); err != nil {
		return nil, err
	}
	dts, pts, err := t.readTimes(ix.n)
	if err != nil {
		return nil, err
	}
	if err = t.readSync(ix); err != nil {
		return nil, err
	}
	edits, err := t.readEdits(movieScale)
	if err != nil {
		return nil, err
	}
	if err = present(ix, pts, edits, t.elst); err != nil {
		return nil, err
	}
	if slices.Equal(dts, pts) {
		ix.dts = packTicks(dts)
		ix.pts, ix.sameTimes = ix.dts, true
	} else {
		ix.dts, ix.pts = packTicks(dts), packTicks(pts)
	}
	ix.whole = ix.order.n
	for k := 0; ix.cutAt < ix.n && k < ix.order.n; k++ {
		if ix.order.at(k) >= ix.cutAt {
			ix.whole = k
			break
		}
	}
	return ix, nil
}

func (t *track) readSizes(ix *Index, fileSize int64, lim Limits) error {
	tooMany := func(b box, n int64) error {
		return tooLarge(b.kind, b.off, "%d samples, limit %d", n, lim.MaxSamples)
	}
	switch {
	case t.stsz.present():
		_, _, d, err := t.stsz.full(8)
		if err != nil {
			return err
		}
		fixed, count := be.Uint32(d), int64(be.Uint32(d[4:]))
		if fixed == 0 && count > int64(len(d)-8)/4 {
			return malformed("stsz", t.stsz.off, "%d sizes declared, %d bytes are there", count, len(d)-8)
		}
		// Without a table the count costs the writer nothing: the samples themselves must be there.
		if fixed > 0 && count > fileSize/int64(fixed) {
			return malformed("stsz", t.stsz.off, "%d samples of %d bytes do not fit into a file of %d", count, fixed, fileSize)
		}
		if count > int64(lim.MaxSamples) {
			return tooMany(t.stsz, count)
		}
		ix.n, ix.fixedSize = int(count), fixed
		if fixed == 0 {
			ix.sizes = make([]uint32, count)
			for i := range ix.sizes {
				ix.sizes[i] = be.Uint32(d[8+4*i:])
			}
		}
	case t.stz2.present():
		_, _, d, err := t.stz2.full(8)
		if err != nil {
			return err
		}
		width, count := int64(d[3]), int64(be.Uint32(d[4:]))
		d = d[8:]
		if width != 4 && width != 8 && width != 16 {
			return malformed("stz2", t.stz2.off, "field size %d, expected 4, 8 or 16", width)
		}
		if (count*width+7)/8 > int64(len(d)) {
			return malformed("stz2", t.stz2.off, "%d sizes of %d bits declared, %d bytes are there", count, width, len(d))
		}
		if count > int64(lim.MaxSamples) {
			return tooMany(t.stz2, count)
		}
		ix.n, ix.sizes = int(count), make([]uint32, count)
		for i := range ix.sizes {
			switch width {
			case 4:
				ix.sizes[i] = uint32(d[i/2]>>(4*(1-i%2))) & 15
			case 8:
				ix.sizes[i] = uint32(d[i])
			case 16:
				ix.sizes[i] = uint32(be.Uint16(d[2*i:]))
			}
		}
	default:
		return malformed("trak", t.off, "the video track has no stsz box")
	}
	return nil
}

// readOffsets places every sample by the chunk tables.
func (t *track) readOffsets(ix *Index, fileSize int64, lim Limits) error {
	chunks, width := t.stco, 4
	if !chunks.present() {
		chunks, width = t.co64, 8
	}
	if !chunks.present() || !t.stsc.present() {
		return malformed("trak", t.off, "the video track has no stsc, stco or co64 box")
	}
	_, starts, nChunks, err := chunks.table(width)
	if err != nil {
		return err
	}
	_, runs, nRuns, err := t.stsc.table(12)
	if err != nil {
		return err
	}
	if nRuns == 0 || be.Uint32(runs) != 1 {
		return malformed("stsc", t.stsc.off, "the first run does not begin at chunk 1")
	}
	ix.low = make([]uint32, ix.n)
	ix.cutAt = ix.n
	d, run := 0, 0
	for c := 0; c < nChunks && d < ix.n; c++ {
		for run+1 < nRuns && be.Uint32(runs[12*(run+1):]) <= uint32(c+1) {
			run++
			if be.Uint32(runs[12*run:]) <= be.Uint32(runs[12*(run-1):]) {
				return malformed("stsc", t.stsc.off, "run %d does not begin after run %d", run, run-1)
			}
		}
		perChunk, entry := int64(be.Uint32(runs[12*run+4:])), int64(be.Uint32(runs[12*run+8:]))-1
		if entry < 0 || entry >= int64(len(ix.entries)) {
			return malformed("stsc", t.stsc.off, "run %d names sample entry %d of %d", run, entry+1, len(ix.entries))
		}
		if len(ix.entryRuns) == 0 || ix.entryRuns[len(ix.entryRuns)-1].entry != uint16(entry) {
			ix.entryRuns = append(ix.entryRuns, entryRun{uint32(d), uint16(entry)})
		}
		var off uint64
		if width == 4 {
			off = uint64(be.Uint32(starts[4*c:]))
		} else {
			off = be.Uint64(starts[8*c:])
		}
		for i := int64(0); i < perChunk && d < ix.n; i++ {
			size := uint64(ix.fixedSize)
			if ix.sizes != nil {
				size = uint64(ix.sizes[d])
			}
			if size == 0 {
				return malformed("stsz", t.stsz.off, "sample %d has no bytes", d)
			}
			if off > uint64(fileSize) || size > uint64(fileSize)-off {
				if !lim.AllowTruncated || off > 1<<48-1 {
					err := malformed(chunks.kind, chunks.off, "entry %d, sample %d: offset %d + size %d ends after the file (%d bytes)", c, d, off, size, fileSize)
					return withHint(err, "the file looks cut; fetch it again, or run 'robocache doctor'")
				}
				ix.cutAt = min(ix.cutAt, d)
			}
			if off > math.MaxUint32 && ix.high == nil {
				ix.high = make([]uint16, ix.n)
			}
			ix.low[d] = uint32(off)
			if ix.high != nil {
				ix.high[d] = uint16(off >> 32)
			}
			off += size
			d++
		}
	}
	if d < ix.n {
		return malformed("stsc", t.stsc.off, "the chunks hold %d samples, %d are declared", d, ix.n)
	}
	return nil
}

// readTimes gives decode and composition times.
func (t *track) readTimes(n int) (dts, pts []int64, err error) {
	_, runs, nRuns, err := t.stts.table(8)
	if err != nil {
		return nil, nil, err
	}
	dts = make([]int64, 0, n)
	now := int64(0)
	for r := range nRuns {
		count, delta := int64(be.Uint32(runs[8*r:])), int64(be.Uint32(runs[8*r+4:]))
		if count > int64(n-len(dts)) {
			return nil, nil, malformed("stts", t.stts.off, "run %d: more times than the %d samples", r, n)
		}
		if delta > math.MaxInt32 {
			return nil, nil, malformed("stts", t.stts.off, "run %d: time goes back (delta %d)", r, int32(delta))
		}
		for range count {
			dts = append(dts, now)
			now += delta
		}
	}
	if len(dts) != n {
		return nil, nil, malformed("stts", t.stts.off, "times for %d samples, %d are declared", len(dts), n)
	}
	pts = slices.Clone(dts)
	if !t.ctts.present() {
		return dts, pts, nil
	}
	_, runs, nRuns, err = t.ctts.table(8)
	if err != nil {
		return nil, nil, err
	}
	d := 0
	for r := range nRuns {
		// Version 0 is unsigned by the standard, but writers put negative offsets there too, and no honest offset is above 2^31.
		count, shift := int64(be.Uint32(runs[8*r:])), int64(int32(be.Uint32(runs[8*r+4:])))
		if count > int64(n-d) {
			return nil, nil, malformed("ctts", t.ctts.off, "run %d: more offsets than the %d samples", r, n)
		}
		for range count {
			pts[d] += shift
			d++
		}
	}
	if d != n {
		return nil, nil, malformed("ctts", t.ctts.off, "offsets for %d samples, %d are declared", d, n)
	}
	return dts, pts, nil
}

func (t *track) readSync(ix *Index) error {
	if !t.stss.present() {
		ix.allSync = true
		return nil
	}
	_, numbers, n, err := t.stss.table(4)
	if err != nil {
		return err
	}
	if n > ix.n {
		return malformed("stss", t.stss.off, "%d sync samples of %d samples", n, ix.n)
	}
	ix.sync = make([]uint32, n)
	for i := range ix.sync {
		s := be.Uint32(numbers[4*i:])
		if s == 0 || s > uint32(ix.n) || i > 0 && s-1 <= ix.sync[i-1] {
			return malformed("stss", t.stss.off, "entry %d: sample %d of %d, after sample %d", i, s, ix.n, ix.sync[max(i-1, 0)]+1)
		}
		ix.sync[i] = s - 1
	}
	if n == ix.n {
		ix.sync, ix.allSync = nil, true
	}
	return nil
}

// edit presents the media times [from, to) beginning at start on the presentation timeline; all in track units.
type edit struct{ from, to, start int64 }

// readEdits gives the edits that show something; none means that everything is shown.
func (t *track) readEdits(movieScale int64) ([]edit, error) {
	if !t.elst.present() {
		return nil, nil
	}
	b := t.elst
	width := 12
	if len(b.data) > 0 && b.data[0] == 1 {
		width = 20
	}
	version, d, n, err := b.table(width)
	if err != nil {
		return nil, err
	}
	var edits []edit
	start := int64(0)
	for i := range n {
		e := d[width*i:]
		var duration uint64
		var media int64
		if version == 1 {
			duration, media = be.Uint64(e), int64(be.Uint64(e[8:]))
		} else {
			duration, media = uint64(be.Uint32(e)), int64(int32(be.Uint32(e[4:])))
		}
		rate := be.Uint32(e[width-4:])
		length := rescale(duration, t.timescale, movieScale)
		if media >= 0 {
			if media > 1<<61 {
				return nil, malformed(b.kind, b.off, "edit %d begins at media time %d", i, media)
			}
			if rate != 1<<16 {
				return nil, unsupported(b.kind, b.off, "re-encode it", "edit %d plays at rate %g, not 1", i, float64(int32(rate))/65536)
			}
			to := media + length
			if duration == 0 && n == 1 || movieScale == 0 {
				to = math.MaxInt64 // a movie that was written before its length was known
			}
			edits = append(edits, edit{media, to, start})
		} else if media < -1 {
			return nil, malformed(b.kind, b.off, "edit %d begins at media time %d", i, media)
		}
		if start += length; start > 1<<61 {
			return nil, malformed(b.kind, b.off, "edit %d ends beyond any time", i)
		}
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

// present fixes the ordinals: which samples are shown, in what order, and when.
func present(ix *Index, pts []int64, edits []edit, elst box) error {
	if len(edits) == 0 {
		edits = []edit{{math.MinInt64, math.MaxInt64, 0}}
	}
	if len(edits) > 4096 {
		return tooLarge(elst.kind, elst.off, "%d edits, limit 4096", len(edits))
	}
	if len(edits) > 1 {
		byMedia := slices.Clone(edits)
		slices.SortFunc(byMedia, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
		for i := 1; i < len(byMedia); i++ {
			if byMedia[i].from < byMedia[i-1].to {
				return unsupported(elst.kind, elst.off, "re-encode it", "the edit list shows media time %d twice", byMedia[i].from)
			}
		}
	}
	byTime := make([]uint32, len(pts))
	for d := range byTime {
		byTime[d] = uint32(d)
	}
	if !slices.IsSorted(pts) {
		slices.SortFunc(byTime, func(a, b uint32) int {
			if c := cmp.Compare(pts[a], pts[b]); c != 0 {
				return c
			}
			return cmp.Compare(a, b)
		})
	}
	at := func(t int64) int {
		return sort.Search(len(byTime), func(i int) bool { return pts[byTime[i]] >= t })
	}
	perm := make([]uint32, 0, len(pts))
	shown := make([]int64, 0, len(pts))
	gap := int64(-1)
	for _, e := range edits { // in presentation order
		from, to := 0, len(byTime)
		if e.from != math.MinInt64 {
			from, to = at(e.from), max(at(e.from), at(e.to))
		}
		origin := e.from
		if e.from == math.MinInt64 {
			origin = 0
		}
		if gap < 0 && from < to {
			// An edit that begins between two pictures shows its first one at once, as the decoders of the field have it: by the
			// letter of the standard it would come late by the rest of a picture that nobody shows.
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
