package pq

// pageHeader is what stands before a page.
type pageHeader struct {
	kind, unpacked, packed int32
	crc                    uint32
	hasCRC                 bool
	values, encoding       int32
	defEnc, repEnc         int32
	defLen, repLen         int32
	plain                  bool // v2: values are not compressed
	seen                   bool
}

func readPageHeader(b []byte) (h pageHeader, size int, bad string) {
	c := &cursor{b: b}
	h.kind = -1
	compressed := true
	crc := int32(0)
	page := func(slots ...slot) func(byte) bool {
		return func(typ byte) bool {
			if typ == tStruct {
				h.seen = true
				c.into(1, slots...)
			}
			return typ == tStruct
		}
	}
	values := slot{1, &h.values}
	has := c.into(0, slot{1, &h.kind}, slot{2, &h.unpacked}, slot{3, &h.packed}, slot{4, &crc},
		slot{5, page(values, slot{2, &h.encoding}, slot{3, &h.defEnc}, slot{4, &h.repEnc})},
		slot{7, page(values, slot{2, &h.encoding})},
		slot{8, page(values, slot{4, &h.encoding}, slot{5, &h.defLen}, slot{6, &h.repLen}, slot{7, &compressed})})
	h.crc, h.hasCRC, h.plain = uint32(crc), has&(1<<4) != 0, !compressed
	if c.bad != "" {
		return h, 0, "page header: " + c.bad
	}
	if h.kind < 0 || h.unpacked < 0 || h.packed < 0 || h.values < 0 || h.defLen < 0 || h.repLen < 0 {
		return h, 0, "page header: a negative size"
	}
	return h, c.pos, ""
}
