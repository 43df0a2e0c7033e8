package video

import (
	"math"
	"slices"
)

// buildIndex builds the index of a track.
func (t *track) buildIndex(p *boxParser, movieScale int64) (*Index, error) {
	ix := &Index{timescale: t.timescale}
	if t.timescale <= 0 {
		return nil, box{"mdhd", nil, t.off}.malformed("the timescale is 0")
	}
	for _, kinds := range [][2]string{
		{"stsd"},
		{"stts"},
		{"stsz", "stz2"},
		{"stsc"},
		{"stco", "co64"},
	} {
		if !t.boxes[kinds[0]].isPresent() && !t.boxes[kinds[1]].isPresent() {
			return nil, t.malformed("the video track has no %s box", kinds[0])
		}
	}
	var err error
	if ix.entries, ix.rawStsd, err = p.parseStsd(t.boxes["stsd"]); err != nil {
		return nil, err
	}
	if err := t.readSizes(p, ix); err != nil {
		return nil, err
	}
	if ix.samples == 0 {
		return ix, nil
	}
	if err := t.readOffsets(p, ix); err != nil {
		return nil, err
	}
	dts, pts, err := t.readTimes(p, ix.samples)
	if err != nil {
		return nil, err
	}
	if err := t.readSync(p, ix); err != nil {
		return nil, err
	}
	edits, err := t.readEdits(p, movieScale)
	if err != nil {
		return nil, err
	}
	slack := t.timescale/max(movieScale, 1) + 1 // one movie unit in track units, rounded up
	if err := ix.numberFrames(pts, edits, slack, t.boxes["elst"]); err != nil {
		return nil, err
	}
	if slices.Equal(dts, pts) {
		ix.dts = packTimes(dts)
		ix.pts, ix.sameTimes = ix.dts, true
	} else {
		ix.dts, ix.pts = packTimes(dts), packTimes(pts)
	}
	ix.whole = ix.order.n
	isTruncated := ix.firstCut < ix.samples
	for k := 0; isTruncated && k < ix.order.n; k++ {
		if ix.order.decodeIndex(k) >= ix.firstCut {
			ix.whole = k
			break
		}
	}
	return ix, nil
}

// readSizes reads stsz, or stz2 with sizes of 4, 8 or 16 bits.
func (t *track) readSizes(p *boxParser, ix *Index) error {
	b := t.boxes["stsz"]
	compact := false
	if !b.isPresent() {
		b, compact = t.boxes["stz2"], true
	}
	_, d, err := p.splitFullBox(b, 8)
	if err != nil {
		return err
	}
	width, fixed := int64(32), be.Uint32(d)
	count, list := int64(be.Uint32(d[4:])), d[8:]
	if compact {
		width, fixed = int64(d[3]), 0
	}
	switch {
	case width != 4 && width != 8 && width != 16 && width != 32 || compact && width == 32:
		return b.malformed("field size %d, expected 4, 8 or 16", width)
	case fixed == 0 && (count*width+7)/8 > int64(len(list)):
		return b.malformed(
			"%d sizes of %d bits are declared, but the box has %d bytes",
			count,
			width,
			len(list),
		)
	// If all samples have one size, no table bounds count. They must fit into the file.
	case fixed > 0 && count > p.fileSize/int64(fixed):
		return b.malformed(
			"%d samples of %d bytes do not fit into a file of %d",
			count,
			fixed,
			p.fileSize,
		)
	case count > int64(p.lim.MaxSamples):
		return b.tooLarge("%d samples, limit %d", count, p.lim.MaxSamples)
	}
	ix.samples, ix.fixedSize = int(count), fixed
	if fixed > 0 {
		return nil
	}
	ix.sizes = make([]uint32, count)
	for i := range ix.sizes {
		switch width {
		case 4: // the first of two sizes is in the high bits
			ix.sizes[i] = uint32(list[i/2]>>(4*(1-i%2))) & 15
		case 8:
			ix.sizes[i] = uint32(list[i])
		case 16:
			ix.sizes[i] = uint32(be.Uint16(list[2*i:]))
		default:
			ix.sizes[i] = be.Uint32(list[4*i:])
		}
	}
	return nil
}

// readOffsets computes the offset of every sample from the chunk tables. Box stco or co64 has the
// offset of each chunk, and stsc has runs of chunks. A run states its first chunk, the samples per
// chunk and the sample entry. Chunks and sample entries are numbered from 1.
func (t *track) readOffsets(p *boxParser, ix *Index) error {
	chunks, width := t.boxes["stco"], 4
	if !chunks.isPresent() {
		chunks, width = t.boxes["co64"], 8
	}
	starts, nChunks, err := p.splitTable(chunks, width)
	if err != nil {
		return err
	}
	stsc := t.boxes["stsc"]
	runs, nRuns, err := p.splitTable(stsc, 12)
	if err != nil {
		return err
	}
	firstChunk := func(run int) uint32 { return be.Uint32(runs[12*run:]) }
	if nRuns == 0 || firstChunk(0) != 1 {
		return stsc.malformed("the first run does not begin at chunk 1")
	}
	ix.offsetLow = make([]uint32, ix.samples)
	ix.firstCut = ix.samples
	sample, run := 0, 0 // next sample, and the run of the current chunk
	for chunk := 0; chunk < nChunks && sample < ix.samples; chunk++ {
		for run+1 < nRuns && firstChunk(run+1) <= uint32(chunk+1) {
			run++
			if firstChunk(run) <= firstChunk(run-1) {
				return stsc.malformed("run %d does not begin after run %d", run, run-1)
			}
		}
		perChunk := int64(be.Uint32(runs[12*run+4:]))
		entry := int64(be.Uint32(runs[12*run+8:])) - 1
		if entry < 0 || entry >= int64(len(ix.entries)) {
			return stsc.malformed(
				"run %d names sample entry %d of %d",
				run,
				entry+1,
				len(ix.entries),
			)
		}
		if len(ix.entryRuns) == 0 || ix.entryRuns[len(ix.entryRuns)-1].entry != uint16(entry) {
			ix.entryRuns = append(ix.entryRuns, entryRun{uint32(sample), uint16(entry)})
		}
		var off uint64
		if width == 4 {
			off = uint64(be.Uint32(starts[4*chunk:]))
		} else {
			off = be.Uint64(starts[8*chunk:])
		}
		for i := int64(0); i < perChunk && sample < ix.samples; i++ {
			size := uint64(ix.fixedSize)
			if ix.sizes != nil {
				size = uint64(ix.sizes[sample])
			}
			if size == 0 {
				stsz := box{"stsz", nil, t.boxes["stsz"].off}
				return stsz.malformed("sample %d has no bytes", sample)
			}
			isCut := off > uint64(p.fileSize) || size > uint64(p.fileSize)-off
			if isCut {
				const maxOffset = 1<<48 - 1 // that offsetLow and offsetHigh can store
				if !p.lim.AllowTruncated || off > maxOffset {
					err := chunks.malformed(
						"entry %d, sample %d: offset %d + size %d ends after the file (%d bytes)",
						chunk,
						sample,
						off,
						size,
						p.fileSize,
					)
					err.Hint = "the file looks truncated: fetch it again"
					return err
				}
				ix.firstCut = min(ix.firstCut, sample)
			}
			// An offset is stored in 32 low and, if a file needs them, 16 high bits.
			if off > math.MaxUint32 && ix.offsetHigh == nil {
				ix.offsetHigh = make([]uint16, ix.samples)
			}
			ix.offsetLow[sample] = uint32(off)
			if ix.offsetHigh != nil {
				ix.offsetHigh[sample] = uint16(off >> 32)
			}
			off += size
			sample++
		}
	}
	if sample < ix.samples {
		return stsc.malformed("the chunks hold %d samples, but %d are declared", sample, ix.samples)
	}
	return nil
}

// eachRun calls fn for each run of a table, with its first sample d, its length and its value. The
// runs must cover n samples.
func (p *boxParser) eachRun(
	b box,
	what string,
	n int,
	fn func(d, count int, v uint32) error,
) error {
	runs, nRuns, err := p.splitTable(b, 8)
	if err != nil {
		return err
	}
	d := 0
	for r := range nRuns {
		count := int64(be.Uint32(runs[8*r:]))
		if count > int64(n-d) {
			return b.malformed("run %d: more %s than the %d samples", r, what, n)
		}
		if err := fn(d, int(count), be.Uint32(runs[8*r+4:])); err != nil {
			return err
		}
		d += int(count)
	}
	if d != n {
		return b.malformed("%s for %d samples, but %d are declared", what, d, n)
	}
	return nil
}

// readTimes returns decode and presentation times.
func (t *track) readTimes(p *boxParser, n int) (dts, pts []int64, err error) {
	dts = make([]int64, n)
	now := int64(0)
	stts := t.boxes["stts"]
	if err := p.eachRun(stts, "times", n, func(d, count int, delta uint32) error {
		if delta > math.MaxInt32 {
			return stts.malformed("sample %d: time goes back (delta %d)", d, int32(delta))
		}
		for i := range dts[d : d+count] {
			dts[d+i] = now
			now += int64(delta)
		}
		return nil
	}); err != nil {
		return dts, pts, err
	}
	pts = slices.Clone(dts)
	if ctts := t.boxes["ctts"]; ctts.isPresent() {
		// Version 0 is unsigned by the standard, but writers also store negative offsets in it. No
		// valid offset exceeds 2^31.
		if err := p.eachRun(ctts, "offsets", n, func(d, count int, shift uint32) error {
			for i := range pts[d : d+count] {
				pts[d+i] += int64(int32(shift))
			}
			return nil
		}); err != nil {
			return dts, pts, err
		}
	}
	return dts, pts, nil
}

// readSync reads the list of sync samples. Without a list, all samples are sync samples.
func (t *track) readSync(p *boxParser, ix *Index) error {
	b := t.boxes["stss"]
	if !b.isPresent() {
		ix.allSync = true
		return nil
	}
	numbers, n, err := p.splitTable(b, 4)
	if err != nil {
		return err
	}
	if n > ix.samples {
		return b.malformed("%d sync samples of %d samples", n, ix.samples)
	}
	ix.syncSamples = make([]uint32, n)
	for i := range ix.syncSamples {
		s := be.Uint32(numbers[4*i:]) // counts from 1
		if s == 0 || s > uint32(ix.samples) || i > 0 && s-1 <= ix.syncSamples[i-1] {
			return b.malformed(
				"entry %d: sample %d of %d, after sample %d",
				i,
				s,
				ix.samples,
				ix.syncSamples[max(i-1, 0)]+1,
			)
		}
		ix.syncSamples[i] = s - 1
	}
	if n == ix.samples {
		ix.syncSamples, ix.allSync = nil, true
	}
	return nil
}
