package video

import (
	"math"
	"slices"
)

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
	if err = present(ix, pts, edits, t.timescale/max(movieScale, 1)+1, t.elst); err != nil {
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
