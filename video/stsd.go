package video

// parseStsd reads the sample entries, and gives each one's bytes without the bit-rate note (btrt), which differs between
// two files of one encoder and tells a decoder nothing.
func parseStsd(b box, lim Limits) (entries []SampleEntry, raw [][]byte, err error) {
	_, _, rest, err := b.full(4)
	if err != nil {
		return nil, nil, err
	}
	count := be.Uint32(rest)
	err = children("stsd", rest[4:], b.off+16, func(e box) error {
		if len(entries) >= int(count) {
			return nil
		}
		if len(entries) >= 256 {
			return tooLarge("stsd", b.off, "more than 256 sample entries")
		}
		se, err := parseEntry(e, lim)
		if err != nil {
			return err
		}
		entries = append(entries, se)
		raw = append(raw, canonicalEntry(e))
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if len(entries) == 0 || len(entries) != int(count) {
		return nil, nil, malformed("stsd", b.off, "%d sample entries declared, %d are there", count, len(entries))
	}
	return entries, raw, nil
}

// entryHead is the fixed part of a visual sample entry, after the box header.
const entryHead = 78

func parseEntry(b box, lim Limits) (SampleEntry, error) {
	e := SampleEntry{FourCC: b.kind, Primaries: 2, Transfer: 2, Matrix: 2}
	if len(b.data) < entryHead {
		return e, malformed(b.kind, b.off, "%d bytes: too short for a visual sample entry", len(b.data))
	}
	e.Width, e.Height = int(be.Uint16(b.data[24:])), int(be.Uint16(b.data[26:]))
	if int64(e.Width)*int64(e.Height) > lim.MaxPixels {
		return e, tooLarge(b.kind, b.off, "%d×%d pixels, limit %d", e.Width, e.Height, lim.MaxPixels)
	}
	e.Codec = codecs[b.kind]
	err := children(b.kind, b.data[entryHead:], b.off+8+entryHead, func(c box) error {
		var config []byte
		switch c.kind {
		case "avcC", "hvcC", "av1C":
			config = c.data
		case "esds":
			codec, specific, err := parseEsds(c)
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
		if len(config) > lim.MaxExtradata {
			return tooLarge(c.kind, c.off, "%d bytes of codec configuration, limit %d", len(config), lim.MaxExtradata)
		}
		if len(config) > 0 && e.Extradata == nil {
			e.Extradata = append([]byte(nil), config...)
		}
		return nil
	})
	return e, err
}

var codecs = map[string]Codec{
	"avc1": H264, "avc2": H264, "avc3": H264, "avc4": H264,
	"hvc1": HEVC, "hev1": HEVC,
	"av01": AV1, "vp09": VP9, "jpeg": MJPEG, "mjpa": MJPEG, "mjpg": MJPEG, "MJPG": MJPEG,
	"mp4v": MPEG4, "XVID": MPEG4, "DIVX": MPEG4,
}

func parseColr(d []byte, e *SampleEntry) {
	if len(d) < 10 {
		return
	}
	switch string(d[:4]) {
	case "nclx":
		if len(d) < 11 {
			return
		}
		e.FullRange = d[10]&0x80 != 0
	case "nclc":
	default:
		return
	}
	e.Primaries, e.Transfer, e.Matrix = int(be.Uint16(d[4:])), int(be.Uint16(d[6:])), int(be.Uint16(d[8:]))
}

// decoderConfig finds the decoder configuration of an esds, past the ES descriptor's optional fields.
func decoderConfig(b box) (kind byte, config []byte, err error) {
	cut := func(what string) (byte, []byte, error) {
		return 0, nil, malformed(b.kind, b.off, "%s is cut short", what)
	}
	if len(b.data) < 4 {
		return cut("the box")
	}
	tag, body, _ := descriptor(b.data[4:])
	if tag != 3 || len(body) < 3 {
		return cut("the ES descriptor")
	}
	flags, body := body[2], body[3:]
	skip := 0
	if flags&0x80 != 0 {
		skip += 2
	}
	if flags&0x40 != 0 {
		if len(body) <= skip {
			return cut("the ES descriptor's URL")
		}
		skip += 1 + int(body[skip])
	}
	if flags&0x20 != 0 {
		skip += 2
	}
	if len(body) < skip {
		return cut("the ES descriptor")
	}
	tag, body, _ = descriptor(body[skip:])
	if tag != 4 || len(body) < 13 {
		return cut("the decoder configuration")
	}
	return body[0], body, nil
}

// parseEsds finds the DecoderSpecificInfo, the only part of an esds that a decoder wants.
func parseEsds(b box) (Codec, []byte, error) {
	kind, config, err := decoderConfig(b)
	if err != nil {
		return "", nil, err
	}
	var codec Codec
	switch kind {
	case 0x20:
		codec = MPEG4
	case 0x21:
		codec = H264
	case 0x23:
		codec = HEVC
	case 0x6c:
		codec = MJPEG
	case 0xb1:
		codec = VP9
	}
	for rest := config[13:]; len(rest) > 0; {
		var tag byte
		var body []byte
		tag, body, rest = descriptor(rest)
		if tag == 5 {
			return codec, body, nil
		}
		if tag == 0 {
			break
		}
	}
	return codec, nil, nil // some writers leave the headers in the stream
}

// descriptor splits off one MPEG-4 descriptor; tag 0 where there is none, or where it is longer than the bytes.
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

// clearBitRates sets the buffer size and the bit rates of an esds to 0, "unknown": they are its btrt.
func clearBitRates(esds []byte) {
	_, config, err := decoderConfig(box{kind: "esds", data: esds})
	if err == nil {
		clear(config[2:13]) // in place: descriptors are views
	}
}

// canonicalEntry is the entry as it is written again: without bit rates, with a plain 32-bit size.
func canonicalEntry(b box) []byte {
	out := append([]byte{0, 0, 0, 0}, []byte(b.kind)...)
	out = append(out, b.data[:entryHead]...)
	_ = children(b.kind, b.data[entryHead:], 0, func(c box) error {
		if c.kind == "btrt" {
			return nil
		}
		out = be.AppendUint32(out, uint32(8+len(c.data)))
		out = append(out, c.kind...)
		out = append(out, c.data...)
		if c.kind == "esds" {
			clearBitRates(out[len(out)-len(c.data):])
		}
		return nil
	})
	be.PutUint32(out, uint32(len(out)))
	return out
}
