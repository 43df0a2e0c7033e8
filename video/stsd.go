package video

// parseStsd reads the sample entries. raw holds the bytes of each entry without bit rates (btrt).
// These differ between files of one encoder, and a decoder does not need them.
func (p *boxParser) parseStsd(b box) (entries []SampleEntry, raw [][]byte, err error) {
	_, rest, err := p.splitFullBox(b, 4)
	if err != nil {
		return entries, raw, err
	}
	count := int(be.Uint32(rest))
	if err := p.eachChild("stsd", rest[4:], b.off+16, func(e box) error {
		if len(entries) >= 256 {
			return b.tooLarge("more than 256 sample entries")
		}
		if len(entries) < count {
			entry, err := p.parseEntry(e)
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
			"%d sample entries are declared, but the box has %d",
			count,
			len(entries),
		)
	}
	return entries, raw, nil
}

// entryHead is the length of the fixed part of a visual sample entry after the box header.
const entryHead = 78

// parseEntry parses one visual sample entry.
func (p *boxParser) parseEntry(b box) (SampleEntry, error) {
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
	err := p.eachChild(b.kind, b.data[entryHead:], b.off+8+entryHead, func(c box) error {
		var config []byte
		switch c.kind {
		case "avcC", "hvcC", "av1C":
			config = c.data
		case "esds":
			codec, specific, err := p.parseEsds(c)
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
	})
	if err != nil {
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

// parseColr copies the color description of a colr box to e.
func parseColr(d []byte, e *SampleEntry) {
	switch {
	case len(d) >= 11 && string(d[:4]) == "nclx":
		e.FullRange = d[10]&0x80 != 0
	case len(d) >= 10 && string(d[:4]) == "nclc": // of QuickTime, without the range
	default:
		return
	}
	e.Primaries = int(be.Uint16(d[4:]))
	e.Transfer = int(be.Uint16(d[6:]))
	e.Matrix = int(be.Uint16(d[8:]))
}

// Tags of the descriptors in an esds (ISO/IEC 14496-1, section 7.2.6).
const (
	esDescriptor       = 3
	configDescriptor   = 4 // decoder configuration
	specificDescriptor = 5 // DecoderSpecificInfo
)

// configBytes is the size of the fields of a decoder configuration before its descriptors.
const configBytes = 13

// decoderConfig returns the decoder configuration of an esds, after the optional fields of the ES
// descriptor. If the box is truncated, what names the truncated part.
func decoderConfig(b box) (config []byte, what string) {
	if len(b.data) < 4 {
		return nil, "the box"
	}
	tag, body, _ := splitDescriptor(b.data[4:])
	if tag != esDescriptor || len(body) < 3 {
		return nil, "the ES descriptor"
	}
	flags, body := body[2], body[3:] // after the id
	skip := 0
	if flags&0x80 != 0 { // streamDependenceFlag: an id follows
		skip += 2
	}
	if flags&0x40 != 0 && len(body) > skip { // URL_Flag: a length and a URL follow
		skip += 1 + int(body[skip])
	}
	if flags&0x20 != 0 { // OCRstreamFlag: an id follows
		skip += 2
	}
	if len(body) < skip {
		return nil, "the ES descriptor"
	}
	tag, body, _ = splitDescriptor(body[skip:])
	if tag != configDescriptor || len(body) < configBytes {
		return nil, "the decoder configuration"
	}
	return body, ""
}

// objectTypes maps the first byte of a decoder configuration to a codec.
var objectTypes = map[byte]Codec{
	0x20: MPEG4,
	0x21: H264,
	0x23: HEVC,
	0x6c: MJPEG,
	0x6d: PNG,
	0xb1: VP9,
}

// parseEsds returns the codec and the DecoderSpecificInfo, the part of an esds that a decoder
// needs.
func (p *boxParser) parseEsds(b box) (Codec, []byte, error) {
	config, what := decoderConfig(b)
	if what != "" {
		return "", nil, b.malformed("%s is truncated", what)
	}
	tag, body, rest := splitDescriptor(config[configBytes:])
	for ; tag != 0; tag, body, rest = splitDescriptor(rest) {
		if tag == specificDescriptor {
			return objectTypes[config[0]], body, nil
		}
	}
	return objectTypes[config[0]], nil, nil // some writers leave the headers in the stream
}

// splitDescriptor splits off one MPEG-4 descriptor. tag is 0 if there is none, or if it exceeds the
// bytes.
func splitDescriptor(d []byte) (tag byte, body, rest []byte) {
	if len(d) < 2 {
		return 0, nil, nil
	}
	tag, size, next := d[0], 0, 1
	// The size has up to 4 bytes, with 7 bits each. The high bit states that another byte follows.
	for ; next < len(d) && next <= 4; next++ {
		size = size<<7 | int(d[next]&0x7f)
		if d[next]&0x80 == 0 {
			next++
			break
		}
	}
	if size > len(d)-next {
		return 0, nil, nil
	}
	return tag, d[next : next+size], d[next+size:]
}

// canonicalEntry returns the entry in the form that Concat writes: without bit rates (those of an
// esds are set to 0, "unknown") and with a plain 32-bit size.
func (p *boxParser) canonicalEntry(b box) ([]byte, error) {
	parts := [][]byte{b.data[:entryHead]}
	if err := p.eachChild(b.kind, b.data[entryHead:], 0, func(c box) error {
		if c.kind == "btrt" {
			return nil
		}
		part := boxOf(c.kind, c.data)
		if config, what := decoderConfig(box{data: part[8:]}); c.kind == "esds" && what == "" {
			clear(config[2:configBytes]) // in place: descriptors alias the part
		}
		parts = append(parts, part)
		return nil
	}); err != nil {
		return nil, err
	}
	return boxOf(b.kind, parts...), nil
}
