package video

import (
	"math"
	"slices"
)

// boxOf makes a box of its parts.
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

func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = be.AppendUint32(b, x)
	}
	return b
}

// header gives everything before the samples: ftyp, moov, and the header of mdat.
func (m *join) header() ([]byte, error) {
	brands := "isom\x00\x00\x02\x00isomiso2"
	if c := m.se.FourCC; c == "avc1" || c == "av01" {
		brands += c
	}
	ftyp := boxOf("ftyp", []byte(brands+"mp41"))
	mdat := append(words(uint32(m.media+8)), "mdat"...)
	if m.media+8 > math.MaxUint32 {
		mdat = be.AppendUint64(append(words(1), "mdat"...), uint64(m.media+16))
	}
	// The offsets' width decides the moov's size, not their values: two passes at most settle both.
	offsets := "stco"
	moov := m.moov(0, offsets)
	if int64(len(ftyp)+len(moov)+len(mdat))+m.media > math.MaxUint32 {
		offsets = "co64"
		moov = m.moov(0, offsets)
	}
	if int64(len(moov)) > math.MaxUint32 {
		return nil, box{"moov", nil, int64(len(ftyp))}.tooLarge("%d bytes of tables", len(moov))
	}
	moov = m.moov(int64(len(ftyp)+len(moov)+len(mdat)), offsets)
	return slices.Concat(ftyp, moov, mdat), nil
}

// chunkSamples is the number of samples in a chunk; chunks matter to nobody when there is one
// track.
const chunkSamples = 32

var unityMatrix = []uint32{1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30}

// moov is the index of samples that begin at media.
func (m *join) moov(media int64, offsets string) []byte {
	duration, e := int64(len(m.sizes))*m.delta, m.se
	version, time := uint32(0), func(v int64) []byte { return words(uint32(v)) }
	if duration+m.delay*m.delta > math.MaxUint32 {
		version, time = 1<<24, func(v int64) []byte { return be.AppendUint64(nil, uint64(v)) }
	}
	made, scale, length := append(time(0), time(0)...), words(uint32(m.timescale)), time(duration)
	var edts []byte
	if m.delay > 0 {
		edts = boxOf(
			"edts",
			boxOf("elst", words(version, 1), length, time(m.delay*m.delta), words(1<<16)),
		)
	}
	return boxOf(
		"moov",
		boxOf(
			"mvhd",
			words(version),
			made,
			scale,
			length,
			words(1<<16, 1<<24, 0, 0),
			words(unityMatrix...),
			words(0, 0, 0, 0, 0, 0, 2),
		),
		boxOf(
			"trak",
			boxOf(
				"tkhd",
				words(version|3),
				made,
				words(1, 0),
				length,
				words(0, 0, 0, 0),
				words(rotationMatrix(e)...),
				words(uint32(e.Width)<<16, uint32(e.Height)<<16),
			),
			edts,
			boxOf(
				"mdia",
				// language "und"
				boxOf("mdhd", words(version), made, scale, length, words(0x55c40000)),
				boxOf(
					"hdlr",
					words(0, 0),
					[]byte("vide"),
					words(0, 0, 0),
					[]byte("VideoHandler\x00"),
				),
				boxOf("minf",
					boxOf("vmhd", words(1, 0, 0)),
					boxOf("dinf", boxOf("dref", words(0, 1), boxOf("url ", words(1)))),
					m.tables(media, offsets)),
			),
		),
	)
}

func (m *join) tables(media int64, offsets string) []byte {
	n := len(m.sizes)
	var ctts, stss []byte
	if m.ordinals != nil {
		shift := func(d int) uint32 { return uint32((int64(m.ordinals[d]) + m.delay - int64(d)) * m.delta) }
		runs, first := []uint32(nil), 0
		for d := range n {
			if d+1 == n || shift(d+1) != shift(d) {
				runs, first = append(runs, uint32(d+1-first), shift(d)), d+1
			}
		}
		ctts = boxOf("ctts", words(0, uint32(len(runs)/2)), words(runs...))
	}
	if len(m.sync) < n {
		stss = boxOf("stss", words(0, uint32(len(m.sync))), words(m.sync...))
	}
	chunks, rest := (n+chunkSamples-1)/chunkSamples, n%chunkSamples
	runs := []uint32{1, chunkSamples, 1}
	if chunks == 1 {
		runs[1] = uint32(n)
	} else if rest > 0 {
		runs = append(runs, uint32(chunks), uint32(rest), 1)
	}
	var places []byte
	for d, size := range m.sizes {
		if d%chunkSamples == 0 && offsets == "co64" {
			places = be.AppendUint64(places, uint64(media))
		} else if d%chunkSamples == 0 {
			places = be.AppendUint32(places, uint32(media))
		}
		media += int64(size)
	}
	return boxOf("stbl",
		boxOf("stsd", words(0, 1), m.entry),
		boxOf("stts", words(0, 1, uint32(n), uint32(m.delta))),
		ctts, stss,
		boxOf("stsz", words(0, 0, uint32(n)), words(m.sizes...)),
		boxOf("stsc", words(0, uint32(len(runs)/3)), words(runs...)),
		boxOf(offsets, words(0, uint32(chunks)), places))
}

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
