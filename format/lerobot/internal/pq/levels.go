package pq

import (
	"encoding/binary"
	"math/bits"
)

// hybrid walks the RLE / bit-packed hybrid encoding of levels, dictionary indices and booleans.
type hybrid struct {
	b     []byte
	width uint
	// the current run
	left   int
	packed bool
	value  uint32
	bits   int // bit position inside b of the next packed value
}

// next starts a run; false at a fault or at the end.
func (h *hybrid) next() bool {
	u, n := binary.Uvarint(h.b)
	if n <= 0 || u>>1 == 0 || u>>1 > 1<<31 {
		return false
	}
	h.b = h.b[n:]
	if u&1 == 0 {
		size := int(h.width+7) / 8
		if len(h.b) < size {
			return false
		}
		h.value = 0
		for i := range size {
			h.value |= uint32(h.b[i]) << (8 * i)
		}
		if h.width < 32 && h.value>>h.width != 0 {
			return false
		}
		h.b, h.left, h.packed = h.b[size:], int(u>>1), false
		return true
	}
	// The last group may be cut short by writers that trim it: the values that are there can be read.
	groups := int(u >> 1)
	if h.width == 0 {
		h.left, h.packed, h.value = groups*8, false, 0
		return true
	}
	h.left = min(groups*8, len(h.b)*8/int(h.width))
	h.packed, h.bits = true, 0
	return h.left > 0
}

// endPacked moves past the bytes of a packed run of which n values were in it.
func (h *hybrid) endPacked() {
	h.b = h.b[min((h.bits+7)/8, len(h.b)):]
}

// take decodes up to len(dst) values of the current run.
func (h *hybrid) take(dst []uint32) int {
	n := min(h.left, len(dst))
	if !h.packed {
		v := h.value
		for i := range dst[:n] {
			dst[i] = v
		}
	} else {
		unpack(dst[:n], h.b, h.bits, h.width)
		h.bits += n * int(h.width)
	}
	h.left -= n
	if h.left == 0 && h.packed {
		h.endPacked()
	}
	return n
}

// unpack reads values of width ≤ 32 bits, least significant bit first.
func unpack(dst []uint32, b []byte, bit int, width uint) {
	mask := uint64(1)<<width - 1
	i := 0
	for ; i < len(dst) && bit>>3+8 <= len(b); i++ {
		dst[i] = uint32(binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask)
		bit += int(width)
	}
	for ; i < len(dst); i++ {
		dst[i] = uint32(readBits(b, bit, width))
		bit += int(width)
	}
}

// readBits reads a value of width ≤ 64 bits at a bit; what lies after the end is 0.
func readBits(b []byte, bit int, width uint) uint64 {
	at, shift := bit>>3, uint(bit&7)
	var w [16]byte
	copy(w[:9], b[min(at, len(b)):])
	v := binary.LittleEndian.Uint64(w[:])>>shift | uint64(w[8])<<(64-shift)
	return v & (1<<width - 1)
}

// indices decodes exactly len(dst) values.
func indices(dst []uint32, b []byte, width uint) bool {
	h := hybrid{b: b, width: width}
	for len(dst) > 0 {
		if h.left == 0 && !h.next() {
			return false
		}
		dst = dst[h.take(dst):]
	}
	return true
}

// levels decodes exactly n levels of at most maxLevel. When all are maxLevel it gives nil and true without filling to:
// the usual case, a column that is OPTIONAL and never null.
func levels(to []uint8, b []byte, n, maxLevel int) (out []uint8, allMax, ok bool) {
	width := uint(bits.Len(uint(maxLevel)))
	h := hybrid{b: b, width: width}
	if !h.next() {
		return nil, n == 0, n == 0
	}
	if !h.packed && h.left >= n && int(h.value) == maxLevel {
		return nil, true, true
	}
	if cap(to) < n {
		to = make([]uint8, n)
	}
	to = to[:n]
	var buf [256]uint32
	allMax = true
	for done := 0; done < n; {
		if h.left == 0 && !h.next() {
			return nil, false, false
		}
		k := h.take(buf[:min(len(buf), n-done)])
		for i, v := range buf[:k] {
			if int(v) > maxLevel {
				return nil, false, false
			}
			allMax = allMax && int(v) == maxLevel
			to[done+i] = uint8(v)
		}
		done += k
	}
	return to, allMax, true
}
