package video

// stsd reads the sample entries, and gives each one's bytes without the bit-rate note (btrt), which
// differs between two files of one encoder and tells a decoder nothing.
func (p *parser) stsd(b box) (entries []SampleEntry, raw [][]byte, err error) {
	_, rest, err := p.full(b, 4)
	if err != nil {
		return entries, raw, err
	}
	count := int(be.Uint32(rest))
	if err := p.children("stsd", rest[4:], b.off+16, func(e box) error {
		if len(entries) >= 256 {
			return b.tooLarge("more than 256 sample entries")
		}
		if len(entries) < count {
			entry, err := p.entry(e)
			if err != nil {
				return err
			}
			entries = append(entries, entry)
			canonicalEntry, err := p.canonicalEntry(e)
			if err != nil {
				return err
			}
			raw = append(raw, canonicalEntry)
		}
		return nil
	}); err != nil {
		return entries, raw, err
	}
	if len(entries) == 0 || len(entries) != count {
		return entries, raw, b.malformed(
			"%d sample entries declared, %d are there",
			count,
			len(entries),
		)
	}
	return entries, raw, nil
}

// entryHead is the fixed part of a visual sample entry, after the box header.
const entryHead = 78

func (p *parser) entry(b box) (SampleEntry, error) {
	e := SampleEntry{FourCC: b.kind, Codec: codecs[b.kind], Primaries: 2, Transfer: 2, Matrix: 2}
	if len(b.data) < entryHead {
		return SampleEntry{}, b.malformed(
			"%d bytes: too short for a visual sample entry",
			len(b.data),
		)
	}
	e.Width, e.Height = int(be.Uint16(b.data[24:])), int(be.Uint16(b.data[26:]))
	if int64(e.Width)*int64(e.Height) > p.lim.MaxPixels {
		return SampleEntry{}, b.tooLarge(
			"%d×%d pixels, limit %d",
			e.Width,
			e.Height,
			p.lim.MaxPixels,
		)
	}
	if err := p.children(b.kind, b.data[entryHead:], b.off+8+entryHead, func(c box) error {
		var config []byte
		switch c.kind {
		case "avcC", "hvcC", "av1C":
			config = c.data
		case "esds":
			codec, specific, err := p.esds(c)
			if err != nil {
				return err
			}
			if b.kind == "mp4v" {
				e.Codec = codec
			}
			config = specific
		case "colr":
			parseColr(c.data, &e)
		}
		if len(config) > p.lim.MaxExtradata {
			return c.tooLarge(
				"%d bytes of codec configuration, limit %d",
				len(config),
				p.lim.MaxExtradata,
			)
		} else if len(config) > 0 && e.Extradata == nil {
			e.Extradata = append([]byte(nil), config...)
		}
		return nil
	}); err != nil {
		return SampleEntry{}, err
	}
	return e, nil
}

var codecs = map[string]Codec{
	"avc1": H264, "avc2": H264, "avc3": H264, "avc4": H264,
	"hvc1": HEVC, "hev1": HEVC,
	"av01": AV1, "vp09": VP9, "jpeg": MJPEG, "mjpa": MJPEG, "mjpg": MJPEG, "MJPG": MJPEG,
	"png ": PNG, "MPNG": PNG,
	"mp4v": MPEG4, "XVID": MPEG4, "DIVX": MPEG4,
}

func parseColr(d []byte, e *SampleEntry) {
	switch {
	case len(d) >= 11 && string(d[:4]) == "nclx":
		e.FullRange = d[10]&0x80 != 0
	case len(d) >= 10 && string(d[:4]) == "nclc":
	default:
		return
	}
	e.Primaries, e.Transfer, e.Matrix = int(
		be.Uint16(d[4:]),
	), int(
		be.Uint16(d[6:]),
	), int(
		be.Uint16(d[8:]),
	)
}

// decoderConfig finds the decoder configuration of an esds, past the ES descriptor's optional
// fields. Where it is cut short, what says so.
func decoderConfig(b box) (config []byte, what string) {
	if len(b.data) < 4 {
		return nil, "the box"
	}
	tag, body, _ := descriptor(b.data[4:])
	if tag != 3 || len(body) < 3 {
		return nil, "the ES descriptor"
	}
	flags, body := body[2], body[3:]
	skip := 0
	if flags&0x80 != 0 {
		skip += 2
	}
	if flags&0x40 != 0 && len(body) > skip { // a URL
		skip += 1 + int(body[skip])
	}
	if flags&0x20 != 0 {
		skip += 2
	}
	if len(body) < skip {
		return nil, "the ES descriptor"
	}
	tag, body, _ = descriptor(body[skip:])
	if tag != 4 || len(body) < 13 {
		return nil, "the decoder configuration"
	}
	return body, ""
}

// objectTypes are the codecs by the first byte of a decoder configuration.
var objectTypes = map[byte]Codec{
	0x20: MPEG4,
	0x21: H264,
	0x23: HEVC,
	0x6c: MJPEG,
	0x6d: PNG,
	0xb1: VP9,
}

// esds finds the DecoderSpecificInfo, the only part of an esds that a decoder wants.
func (p *parser) esds(b box) (Codec, []byte, error) {
	config, what := decoderConfig(b)
	if what != "" {
		return "", nil, b.malformed("%s is cut short", what)
	}
	for tag, body, rest := descriptor(config[13:]); tag != 0; tag, body, rest = descriptor(rest) {
		if tag == 5 {
			return objectTypes[config[0]], body, nil
		}
	}
	return objectTypes[config[0]], nil, nil // some writers leave the headers in the stream
}

// descriptor splits off one MPEG-4 descriptor; tag 0 where there is none, or where it is longer
// than the bytes.
func descriptor(d []byte) (tag byte, body, rest []byte) {
	if len(d) < 2 {
		return 0, nil, nil
	}
	tag, n, i := d[0], 0, 1
	for ; i < len(d) && i <= 4; i++ {
		n = n<<7 | int(d[i]&0x7f)
		if d[i]&0x80 == 0 {
			i++
			break
		}
	}
	if n > len(d)-i {
		return 0, nil, nil
	}
	return tag, d[i : i+n], d[i+n:]
}

// canonicalEntry is the entry as it is written again: without bit rates (those of an esds are set
// to 0, "unknown"), with a plain 32-bit size.
func (p *parser) canonicalEntry(b box) ([]byte, error) {
	parts := [][]byte{b.data[:entryHead]}
	if err := p.children(b.kind, b.data[entryHead:], 0, func(c box) error {
		if c.kind == "btrt" {
			return nil
		}
		part := boxOf(c.kind, c.data)
		if config, what := decoderConfig(box{data: part[8:]}); c.kind == "esds" && what == "" {
			clear(config[2:13]) // in place: descriptors are views
		}
		parts = append(parts, part)
		return nil
	}); err != nil {
		return nil, err
	}
	return boxOf(b.kind, parts...), nil
}
