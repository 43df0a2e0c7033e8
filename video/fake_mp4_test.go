package video

import "slices"

// fake describes an mp4 that the tests write. It can use every form of table that real writers use.
type fake struct {
	samples    []fakeSample
	edits      []fakeEdit
	timescale  uint32
	movieScale uint32
	entries    [][]byte // sample entries; by default one avc1
	noStss     bool
	co64       bool
	stz2       int // bits per size; 0 = stsz
	fixed      uint32
	cttsV1     bool
	elstV1     bool
	moovLast   bool
	lengths64  bool // mvhd, tkhd and mdhd have version 1
	matrix     []uint32
	perChunk   int
	extra      func([]byte) []byte // appends more boxes to the moov
}

type fakeSample struct {
	size  uint32
	delta uint32
	shift int32
	sync  bool
	entry uint32 // 0-based
}

type fakeEdit struct {
	duration uint64 // in movie units
	media    int64
	rate     uint32 // 0 = 1
}

// entryBox returns a visual sample entry with child boxes.
func entryBox(kind string, w, h uint16, kids ...[]byte) []byte {
	return nest(nil, kind, func(b []byte) []byte {
		head := make([]byte, entryHead)
		head[7] = 1
		be.PutUint16(head[24:], w)
		be.PutUint16(head[26:], h)
		b = append(b, head...)
		for _, k := range kids {
			b = append(b, k...)
		}
		return b
	})
}

func rawBox(kind string, payload ...byte) []byte {
	return nest(nil, kind, func(b []byte) []byte { return append(b, payload...) })
}

func (f *fake) bytes() []byte {
	media := 0
	for _, s := range f.samples {
		media += int(f.sizeOf(s))
	}
	mdat := nest(nil, "mdat", func(b []byte) []byte { return append(b, make([]byte, media)...) })
	ftyp := rawBox("ftyp", []byte("isom\x00\x00\x02\x00isom")...)
	if f.moovLast {
		return slices.Concat(ftyp, mdat, f.moov(int64(len(ftyp)+8)))
	}
	moov := f.moov(0)
	return slices.Concat(ftyp, f.moov(int64(len(ftyp)+len(moov)+8)), mdat)
}

// header returns the file without its media: ftyp, moov, and enough padding for ReadIndex to read
// ahead.
func (f *fake) header() []byte {
	ftyp := rawBox("ftyp", []byte("isom\x00\x00\x02\x00isom")...)
	return slices.Concat(ftyp, f.moov(4096), make([]byte, headRead))
}

func (f *fake) sizeOf(s fakeSample) uint32 {
	if f.fixed > 0 {
		return f.fixed
	}
	return s.size
}

func (f *fake) moov(media int64) []byte {
	if f.timescale == 0 {
		f.timescale = 15360
	}
	if f.movieScale == 0 {
		f.movieScale = f.timescale
	}
	if f.entries == nil {
		f.entries = [][]byte{entryBox("avc1", 64, 48, rawBox("avcC", 1, 100, 0, 30, 0xff, 0xe0, 0))}
	}
	if f.perChunk == 0 {
		f.perChunk = 3
	}
	version := byte(0)
	if f.lengths64 {
		version = 1
	}
	v := uint32(version) << 24
	matrix := f.matrix
	if matrix == nil {
		matrix = unityMatrix
	}
	return nest(nil, "moov", func(b []byte) []byte {
		b = nest(b, "mvhd", func(b []byte) []byte {
			b = timed(timed(u32s(b, v), version, 0), version, 0)
			b = timed(u32s(b, f.movieScale), version, 0)
			b = u32s(u32s(b, 1<<16, 1<<24, 0, 0), unityMatrix...)
			return u32s(b, 0, 0, 0, 0, 0, 0, 2)
		})
		if f.extra != nil {
			b = f.extra(b)
		}
		return nest(b, "trak", func(b []byte) []byte {
			b = nest(b, "tkhd", func(b []byte) []byte {
				b = timed(timed(u32s(b, v), version, 0), version, 0)
				b = timed(u32s(b, 1, 0), version, 0)
				return u32s(u32s(u32s(b, 0, 0, 0, 0), matrix...), 64<<16, 48<<16)
			})
			if f.edits != nil {
				b = nest(b, "edts", func(b []byte) []byte { return nest(b, "elst", f.elst) })
			}
			return nest(b, "mdia", func(b []byte) []byte {
				b = nest(b, "mdhd", func(b []byte) []byte {
					b = timed(timed(u32s(b, v), version, 0), version, 0)
					return u32s(timed(u32s(b, f.timescale), version, 0), 0)
				})
				b = nest(
					b,
					"hdlr",
					func(b []byte) []byte {
						return u32s(append(u32s(b, 0, 0), "vide"...), 0, 0, 0)
					},
				)
				return nest(b, "minf", func(b []byte) []byte {
					return nest(b, "stbl", func(b []byte) []byte { return f.stbl(b, media) })
				})
			})
		})
	})
}

func (f *fake) elst(b []byte) []byte {
	version := byte(0)
	if f.elstV1 {
		version = 1
	}
	b = u32s(b, uint32(version)<<24, uint32(len(f.edits)))
	for _, e := range f.edits {
		rate := e.rate
		if rate == 0 {
			rate = 1 << 16
		}
		b = u32s(timed(timed(b, version, int64(e.duration)), version, e.media), rate)
	}
	return b
}

func (f *fake) stbl(b []byte, media int64) []byte {
	n := uint32(len(f.samples))
	b = nest(b, "stsd", func(b []byte) []byte {
		return append(u32s(b, 0, uint32(len(f.entries))), slices.Concat(f.entries...)...)
	})
	b = nest(b, "stts", func(b []byte) []byte {
		b = u32s(b, 0, 0)
		count, runs := len(b)-4, uint32(0)
		for i := 0; i < len(f.samples); runs++ {
			j := i
			for j < len(f.samples) && f.samples[j].delta == f.samples[i].delta {
				j++
			}
			b = u32s(b, uint32(j-i), f.samples[i].delta)
			i = j
		}
		be.PutUint32(b[count:], runs)
		return b
	})
	if slices.ContainsFunc(f.samples, func(s fakeSample) bool { return s.shift != 0 }) {
		b = nest(b, "ctts", func(b []byte) []byte {
			version := uint32(0)
			if f.cttsV1 {
				version = 1 << 24
			}
			b = u32s(b, version, n)
			for _, s := range f.samples {
				b = u32s(b, 1, uint32(s.shift))
			}
			return b
		})
	}
	if !f.noStss {
		b = nest(b, "stss", func(b []byte) []byte {
			b = u32s(b, 0, 0)
			count, k := len(b)-4, uint32(0)
			for i, s := range f.samples {
				if s.sync {
					b = u32s(b, uint32(i+1))
					k++
				}
			}
			be.PutUint32(b[count:], k)
			return b
		})
	}
	switch {
	case f.fixed > 0:
		b = nest(b, "stsz", func(b []byte) []byte { return u32s(b, 0, f.fixed, n) })
	case f.stz2 > 0:
		b = nest(b, "stz2", func(b []byte) []byte {
			b = u32s(b, 0, uint32(f.stz2), n)
			for i, s := range f.samples {
				switch {
				case f.stz2 == 16:
					b = be.AppendUint16(b, uint16(s.size))
				case f.stz2 == 8:
					b = append(b, byte(s.size))
				case i%2 == 0:
					b = append(b, byte(s.size)<<4)
				default:
					b[len(b)-1] |= byte(s.size)
				}
			}
			return b
		})
	default:
		b = nest(b, "stsz", func(b []byte) []byte {
			b = u32s(b, 0, 0, n)
			for _, s := range f.samples {
				b = u32s(b, s.size)
			}
			return b
		})
	}
	// A chunk ends when it is full, or when the sample entry changes.
	type chunk struct{ first, n, entry uint32 }
	var chunks []chunk
	for i, s := range f.samples {
		if k := len(chunks) - 1; k >= 0 && chunks[k].n < uint32(f.perChunk) &&
			chunks[k].entry == s.entry {
			chunks[k].n++
			continue
		}
		chunks = append(chunks, chunk{uint32(i), 1, s.entry})
	}
	b = nest(b, "stsc", func(b []byte) []byte {
		b = u32s(b, 0, 0)
		count, runs := len(b)-4, uint32(0)
		for i, c := range chunks {
			if i == 0 || c.n != chunks[i-1].n || c.entry != chunks[i-1].entry {
				b = u32s(b, uint32(i+1), c.n, c.entry+1)
				runs++
			}
		}
		be.PutUint32(b[count:], runs)
		return b
	})
	kind := "stco"
	if f.co64 {
		kind = "co64"
	}
	return nest(b, kind, func(b []byte) []byte {
		b = u32s(b, 0, uint32(len(chunks)))
		off, at := media, 0
		for _, c := range chunks {
			for ; at < int(c.first); at++ {
				off += int64(f.sizeOf(f.samples[at]))
			}
			b = timed(b, map[bool]byte{true: 1}[f.co64], off)
		}
		return b
	})
}

// nest appends a box whose payload is written by fn.
func nest(b []byte, kind string, fn func([]byte) []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(b, kind...)
	b = fn(b)
	be.PutUint32(b[at:], uint32(len(b)-at))
	return b
}

func u32s(b []byte, v ...uint32) []byte {
	for _, x := range v {
		b = be.AppendUint32(b, x)
	}
	return b
}

// timed appends a value of 32 bits in version 0 of a box, and of 64 bits in version 1.
func timed(b []byte, version byte, v int64) []byte {
	if version == 1 {
		return be.AppendUint64(b, uint64(v))
	}
	return be.AppendUint32(b, uint32(v))
}
