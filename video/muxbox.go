package video

import (
	"math"
	"slices"
)

// boxOf returns a box with the given parts as payload.
func boxOf(kind string, parts ...[]byte) []byte {
	n := 8
	for _, p := range parts {
		n += len(p)
	}
	b := append(be.AppendUint32(make([]byte, 0, n), uint32(n)), kind...)
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// bigEndianWords returns the 32-bit words as big-endian bytes.
func bigEndianWords(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = be.AppendUint32(b, x)
	}
	return b
}

// fileHeader returns everything before the samples: ftyp, moov and the header of mdat.
func (m *joinPlan) fileHeader() ([]byte, error) {
	brands := "isom\x00\x00\x02\x00isomiso2"
	if c := m.sampleEntry.FourCC; c == "avc1" || c == "av01" {
		brands += c
	}
	ftyp := boxOf("ftyp", []byte(brands+"mp41"))
	mdat := append(bigEndianWords(uint32(m.mediaBytes+8)), "mdat"...)
	if m.mediaBytes+8 > math.MaxUint32 {
		mdat = be.AppendUint64(append(bigEndianWords(1), "mdat"...), uint64(m.mediaBytes+16))
	}
	// The size of the moov depends on the width of the offsets, but not on their values. At most
	// two passes determine both.
	offsets := "stco"
	moov := m.moovBox(0, offsets)
	if int64(len(ftyp)+len(moov)+len(mdat))+m.mediaBytes > math.MaxUint32 {
		offsets = "co64"
		moov = m.moovBox(0, offsets)
	}
	if int64(len(moov)) > math.MaxUint32 {
		return nil, box{"moov", nil, int64(len(ftyp))}.tooLarge("%d bytes of tables", len(moov))
	}
	moov = m.moovBox(int64(len(ftyp)+len(moov)+len(mdat)), offsets)
	return slices.Concat(ftyp, moov, mdat), nil
}

// chunkSamples is the number of samples per chunk. The value is arbitrary, because there is only
// one track.
const chunkSamples = 32

// unityMatrix is the display matrix without rotation, row by row. Its elements are fixed-point
// numbers with 16 fractional bits, or 30 in the last column.
var unityMatrix = []uint32{1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30}

// moovBox returns the index of samples that begin at file offset media. offsets is the kind of the
// box of chunk offsets: stco with 32 bits, or co64.
func (m *joinPlan) moovBox(media int64, offsets string) []byte {
	duration, e := int64(len(m.sizes))*m.frameTicks, m.sampleEntry
	// Boxes of version 1 have times of 64 bits, which are used only if 32 bits are too small.
	version, time := uint32(0), func(v int64) []byte { return bigEndianWords(uint32(v)) }
	if duration+m.delayFrames*m.frameTicks > math.MaxUint32 {
		version, time = 1<<24, func(v int64) []byte { return be.AppendUint64(nil, uint64(v)) }
	}
	made := append(time(0), time(0)...) // creation and modification time
	scale := bigEndianWords(uint32(m.timescale))
	length := time(duration)
	var edts []byte
	if m.delayFrames > 0 {
		edts = boxOf(
			"edts",
			boxOf(
				"elst",
				bigEndianWords(version, 1),
				length,
				time(m.delayFrames*m.frameTicks),
				bigEndianWords(1<<16),
			),
		)
	}
	return boxOf(
		"moov",
		boxOf(
			"mvhd",
			bigEndianWords(version),
			made,
			scale,
			length,
			bigEndianWords(1<<16, 1<<24, 0, 0), // rate 1, volume 1, reserved
			bigEndianWords(unityMatrix...),
			bigEndianWords(0, 0, 0, 0, 0, 0, 2), // reserved, id of the next track
		),
		boxOf(
			"trak",
			boxOf(
				"tkhd",
				bigEndianWords(version|3), // the track is enabled, and used in the movie
				made,
				bigEndianWords(1, 0), // id, reserved
				length,
				bigEndianWords(0, 0, 0, 0), // layer, group and volume
				bigEndianWords(rotationMatrix(e)...),
				bigEndianWords(uint32(e.Width)<<16, uint32(e.Height)<<16),
			),
			edts,
			boxOf(
				"mdia",
				boxOf(
					"mdhd",
					bigEndianWords(version),
					made,
					scale,
					length,
					bigEndianWords(0x55c40000), // language "und"
				),
				boxOf(
					"hdlr",
					bigEndianWords(0, 0),
					[]byte("vide"),
					bigEndianWords(0, 0, 0),
					[]byte("VideoHandler\x00"),
				),
				boxOf(
					"minf",
					boxOf("vmhd", bigEndianWords(1, 0, 0)),
					boxOf(
						"dinf",
						boxOf("dref", bigEndianWords(0, 1), boxOf("url ", bigEndianWords(1))),
					),
					m.sampleTables(media, offsets),
				),
			),
		),
	)
}

// sampleTables returns the stbl box of samples that begin at file offset media.
func (m *joinPlan) sampleTables(media int64, offsets string) []byte {
	n := len(m.sizes)
	var ctts, stss []byte
	if m.ordinals != nil {
		shift := func(d int) uint32 {
			return uint32((int64(m.ordinals[d]) + m.delayFrames - int64(d)) * m.frameTicks)
		}
		runs, first := []uint32(nil), 0 // pairs of length and shift; first sample of the run
		for d := range n {
			if d+1 == n || shift(d+1) != shift(d) {
				runs, first = append(runs, uint32(d+1-first), shift(d)), d+1
			}
		}
		ctts = boxOf("ctts", bigEndianWords(0, uint32(len(runs)/2)), bigEndianWords(runs...))
	}
	if len(m.sync) < n {
		stss = boxOf("stss", bigEndianWords(0, uint32(len(m.sync))), bigEndianWords(m.sync...))
	}
	chunks, rest := (n+chunkSamples-1)/chunkSamples, n%chunkSamples
	runs := []uint32{1, chunkSamples, 1} // first chunk, samples per chunk, sample entry
	if chunks == 1 {
		runs[1] = uint32(n)
	} else if rest > 0 {
		runs = append(runs, uint32(chunks), uint32(rest), 1)
	}
	var chunkOffsets []byte
	for d, size := range m.sizes {
		if d%chunkSamples == 0 && offsets == "co64" {
			chunkOffsets = be.AppendUint64(chunkOffsets, uint64(media))
		} else if d%chunkSamples == 0 {
			chunkOffsets = be.AppendUint32(chunkOffsets, uint32(media))
		}
		media += int64(size)
	}
	return boxOf("stbl",
		boxOf("stsd", bigEndianWords(0, 1), m.entryBytes),
		boxOf("stts", bigEndianWords(0, 1, uint32(n), uint32(m.frameTicks))),
		ctts, stss,
		boxOf("stsz", bigEndianWords(0, 0, uint32(n)), bigEndianWords(m.sizes...)),
		boxOf("stsc", bigEndianWords(0, uint32(len(runs)/3)), bigEndianWords(runs...)),
		boxOf(offsets, bigEndianWords(0, uint32(chunks)), chunkOffsets))
}

// rotationMatrix returns the display matrix of the rotation of an entry.
func rotationMatrix(e *SampleEntry) []uint32 {
	const one, minus = 1 << 16, 0xffff0000
	w, h := uint32(e.Width)<<16, uint32(e.Height)<<16
	switch e.Rotation {
	case 90:
		return []uint32{0, one, 0, minus, 0, 0, h, 0, 1 << 30}
	case 180:
		return []uint32{minus, 0, 0, 0, minus, 0, w, h, 1 << 30}
	case 270:
		return []uint32{0, minus, 0, one, 0, 0, 0, w, 1 << 30}
	}
	return unityMatrix
}
