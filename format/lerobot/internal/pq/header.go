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
	c.fields(0, func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == tI32:
			h.kind = c.i32()
		case id == 2 && typ == tI32:
			h.unpacked = c.i32()
		case id == 3 && typ == tI32:
			h.packed = c.i32()
		case id == 4 && typ == tI32:
			h.crc, h.hasCRC = uint32(c.i32()), true
		case (id == 5 || id == 7 || id == 8) && typ == tStruct:
			v2 := id == 8
			h.seen = true
			c.fields(1, func(id int16, typ byte) bool {
				switch {
				case id == 1 && typ == tI32:
					h.values = c.i32()
				case !v2 && id == 2 && typ == tI32:
					h.encoding = c.i32()
				case !v2 && id == 3 && typ == tI32:
					h.defEnc = c.i32()
				case !v2 && id == 4 && typ == tI32:
					h.repEnc = c.i32()
				case v2 && id == 4 && typ == tI32:
					h.encoding = c.i32()
				case v2 && id == 5 && typ == tI32:
					h.defLen = c.i32()
				case v2 && id == 6 && typ == tI32:
					h.repLen = c.i32()
				case v2 && id == 7 && (typ == tTrue || typ == tFalse):
					h.plain = typ == tFalse
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	if c.bad != "" {
		return h, 0, "page header: " + c.bad
	}
	if h.kind < 0 || h.unpacked < 0 || h.packed < 0 || h.values < 0 || h.defLen < 0 || h.repLen < 0 {
		return h, 0, "page header: a negative size"
	}
	return h, c.pos, ""
}
