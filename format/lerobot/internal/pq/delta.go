package pq

import (
	"encoding/binary"
)

// deltaInts decodes DELTA_BINARY_PACKED: at most want integers; rest is what follows. Arithmetic wraps, as the format says.
func deltaInts(b []byte, want int) (out []int64, rest []byte, bad string) {
	const early = "delta encoding ends early"
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, nil, early
		}
		head[i], b = v, b[n:]
	}
	block, minis, total := head[0], head[1], head[2]
	first, n := binary.Varint(b)
	if n <= 0 {
		return nil, nil, early
	}
	b = b[n:]
	if block == 0 || block > 1<<20 || block%128 != 0 || minis == 0 || minis > block/32 || block%minis != 0 || block/minis%32 != 0 {
		return nil, nil, "delta encoding: bad block size"
	}
	if total != uint64(want) {
		return nil, nil, "delta encoding: another number of values than the page declares"
	}
	if want == 0 {
		return nil, b, ""
	}
	out = make([]int64, 0, want)
	out = append(out, first)
	per := int(block / minis)
	for len(out) < want {
		minDelta, n := binary.Varint(b)
		if n <= 0 || len(b)-n < int(minis) {
			return nil, nil, early
		}
		b = b[n:]
		widths := b[:minis]
		b = b[minis:]
		for _, w := range widths {
			if len(out) >= want {
				break
			}
			if w > 64 {
				return nil, nil, "delta encoding: bad bit width"
			}
			size := per * int(w) / 8
			if len(b) < size {
				return nil, nil, early
			}
			bit := 0
			for i := 0; i < per && len(out) < want; i++ {
				d := readBits(b, bit, uint(w))
				bit += int(w)
				out = append(out, out[len(out)-1]+minDelta+int64(d))
			}
			b = b[size:]
		}
	}
	return out, b, ""
}

// delta appends n integers.
func (v *values) delta(b []byte, n int, typ Physical) string {
	out, _, bad := deltaInts(b, n)
	if bad != "" {
		return bad
	}
	dst := v.grow(n)
	switch typ {
	case Int32:
		for i, x := range out {
			binary.LittleEndian.PutUint32(dst[i*4:], uint32(x))
		}
	case Int64:
		for i, x := range out {
			binary.LittleEndian.PutUint64(dst[i*8:], uint64(x))
		}
	default:
		return "delta encoding of a type that has none"
	}
	return ""
}

// deltaLength appends n byte arrays: lengths, then bytes.
func (v *values) deltaLength(b []byte, n int, room int64) string {
	lengths, rest, bad := deltaInts(b, n)
	if bad != "" {
		return bad
	}
	for _, k := range lengths {
		if k < 0 || k > int64(len(rest)) {
			return "a byte array longer than its page"
		}
		if int64(len(v.flat))+k > room {
			return tooLarge
		}
		v.add(rest[:k])
		rest = rest[k:]
	}
	return ""
}

// deltaBytes appends n byte arrays that share prefixes with their predecessors.
func (v *values) deltaBytes(b []byte, n int, room int64) string {
	prefixes, rest, bad := deltaInts(b, n)
	if bad != "" {
		return bad
	}
	lengths, rest, bad := deltaInts(rest, n)
	if bad != "" {
		return bad
	}
	var last, item []byte
	for i, k := range lengths {
		p := prefixes[i]
		if k < 0 || k > int64(len(rest)) || p < 0 || p > int64(len(last)) {
			return "a byte array longer than its page"
		}
		if int64(len(v.flat))+p+k > room {
			return tooLarge
		}
		item = append(append(item[:0], last[:p]...), rest[:k]...)
		rest = rest[k:]
		if v.width > 0 {
			if len(item) != v.width {
				return "a value of another length than its type"
			}
			copy(v.grow(1), item)
		} else {
			v.add(item)
		}
		last, item = item, last
	}
	return ""
}
