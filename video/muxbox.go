package video

import "math"

// nest appends a box whose payload fn appends.
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

// timed appends a value that is 32 bits wide in version 0 of a box, and 64 in version 1.
func timed(b []byte, version byte, v int64) []byte {
	if version == 1 {
		return be.AppendUint64(b, uint64(v))
	}
	return be.AppendUint32(b, uint32(v))
}

// header gives everything before the samples: ftyp, moov, and the header of mdat.
func (m *join) header() ([]byte, error) {
	ftyp := nest(nil, "ftyp", func(b []byte) []byte {
		b = append(b, "isom\x00\x00\x02\x00isomiso2"...)
		switch m.se.FourCC {
		case "avc1", "av01":
			b = append(b, m.se.FourCC...)
		}
		return append(b, "mp41"...)
	})
	mdat := int64(8)
	if m.media+8 > math.MaxUint32 {
		mdat = 16
	}
	// The offsets' width decides the moov's size, not their values: two passes at most settle both.
	wide := false
	moov := m.moov(0, wide)
	if int64(len(ftyp)+len(moov))+mdat+m.media > math.MaxUint32 {
		wide = true
		moov = m.moov(0, wide)
	}
	if int64(len(moov)) > math.MaxUint32 {
		return nil, tooLarge("moov", int64(len(ftyp)), "%d bytes of tables", len(moov))
	}
	moov = m.moov(int64(len(ftyp)+len(moov))+mdat, wide)
	out := append(ftyp, moov...)
	if mdat == 16 {
		out = append(u32s(out, 1), "mdat"...)
		return be.AppendUint64(out, uint64(m.media+16)), nil
	}
	return append(u32s(out, uint32(m.media+8)), "mdat"...), nil
}

// chunkSamples is the number of samples in a chunk; chunks matter to nobody when there is one track.
const chunkSamples = 32

var unityMatrix = []uint32{1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30}

func (m *join) moov(media int64, wide bool) []byte {
	n := len(m.sizes)
	duration := int64(n) * m.delta
	mediaDuration := duration + m.delay*m.delta
	version := byte(0)
	if mediaDuration > math.MaxUint32 {
		version = 1
	}
	v := uint32(version) << 24
	e := m.se
	return nest(nil, "moov", func(b []byte) []byte {
		b = nest(b, "mvhd", func(b []byte) []byte {
			b = timed(timed(u32s(b, v), version, 0), version, 0)
			b = timed(u32s(b, uint32(m.timescale)), version, duration)
			b = u32s(b, 1<<16, 1<<24, 0, 0)
			b = u32s(b, unityMatrix...)
			return u32s(b, 0, 0, 0, 0, 0, 0, 2)
		})
		return nest(b, "trak", func(b []byte) []byte {
			b = nest(b, "tkhd", func(b []byte) []byte {
				b = timed(timed(u32s(b, v|3), version, 0), version, 0)
				b = timed(u32s(b, 1, 0), version, duration)
				b = u32s(b, 0, 0, 0, 0)
				b = u32s(b, rotationMatrix(e)...)
				return u32s(b, uint32(e.Width)<<16, uint32(e.Height)<<16)
			})
			if m.delay > 0 {
				b = nest(b, "edts", func(b []byte) []byte {
					return nest(b, "elst", func(b []byte) []byte {
						b = timed(u32s(b, v, 1), version, duration)
						return u32s(timed(b, version, m.delay*m.delta), 1<<16)
					})
				})
			}
			return nest(b, "mdia", func(b []byte) []byte {
				b = nest(b, "mdhd", func(b []byte) []byte {
					b = timed(timed(u32s(b, v), version, 0), version, 0)
					b = timed(u32s(b, uint32(m.timescale)), version, duration)
					return u32s(b, 0x55c40000) // language "und"
				})
				b = nest(b, "hdlr", func(b []byte) []byte {
					return append(u32s(append(u32s(b, 0, 0), "vide"...), 0, 0, 0), "VideoHandler\x00"...)
				})
				return nest(b, "minf", func(b []byte) []byte {
					b = nest(b, "vmhd", func(b []byte) []byte { return u32s(b, 1, 0, 0) })
					b = nest(b, "dinf", func(b []byte) []byte {
						return nest(b, "dref", func(b []byte) []byte {
							return nest(u32s(b, 0, 1), "url ", func(b []byte) []byte { return u32s(b, 1) })
						})
					})
					return nest(b, "stbl", func(b []byte) []byte { return m.tables(b, media, wide) })
				})
			})
		})
	})
}

func (m *join) tables(b []byte, media int64, wide bool) []byte {
	n := len(m.sizes)
	b = nest(b, "stsd", func(b []byte) []byte { return append(u32s(b, 0, 1), m.entry...) })
	b = nest(b, "stts", func(b []byte) []byte { return u32s(b, 0, 1, uint32(n), uint32(m.delta)) })
	if m.ordinals != nil {
		b = nest(b, "ctts", func(b []byte) []byte {
			b = u32s(b, 0, 0)
			count := len(b) - 4
			runs, length := uint32(0), uint32(0)
			shift := func(d int) uint32 { return uint32((int64(m.ordinals[d]) + m.delay - int64(d)) * m.delta) }
			for d := range n {
				if length++; d+1 == n || shift(d+1) != shift(d) {
					b = u32s(b, length, shift(d))
					runs, length = runs+1, 0
				}
			}
			be.PutUint32(b[count:], runs)
			return b
		})
	}
	if len(m.sync) < n {
		b = nest(b, "stss", func(b []byte) []byte { return u32s(u32s(b, 0, uint32(len(m.sync))), m.sync...) })
	}
	b = nest(b, "stsz", func(b []byte) []byte { return u32s(u32s(b, 0, 0, uint32(n)), m.sizes...) })
	chunks := (n + chunkSamples - 1) / chunkSamples
	b = nest(b, "stsc", func(b []byte) []byte {
		rest := n % chunkSamples
		switch {
		case chunks == 1:
			return u32s(b, 0, 1, 1, uint32(n), 1)
		case rest == 0:
			return u32s(b, 0, 1, 1, chunkSamples, 1)
		}
		return u32s(b, 0, 2, 1, chunkSamples, 1, uint32(chunks), uint32(rest), 1)
	})
	kind := "stco"
	if wide {
		kind = "co64"
	}
	return nest(b, kind, func(b []byte) []byte {
		b = u32s(b, 0, uint32(chunks))
		off := media
		for d, size := range m.sizes {
			if d%chunkSamples == 0 {
				if wide {
					b = be.AppendUint64(b, uint64(off))
				} else {
					b = be.AppendUint32(b, uint32(off))
				}
			}
			off += int64(size)
		}
		return b
	})
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
