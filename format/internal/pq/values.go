package pq

import (
	"encoding/binary"
	"math/bits"
)

// Encodings of values, with their numbers in the format.
const (
	encPlain       = 0
	encPlainDict   = 2
	encRLE         = 3
	encDelta       = 5
	encDeltaLength = 6
	encDeltaBytes  = 7
	encRLEDict     = 8
	encSplit       = 9
)

var encodingNames = map[int32]string{
	0: "PLAIN",
	2: "PLAIN_DICTIONARY",
	3: "RLE",
	4: "BIT_PACKED",
	5: "DELTA_BINARY_PACKED",
	6: "DELTA_LENGTH_BYTE_ARRAY",
	7: "DELTA_BYTE_ARRAY",
	8: "RLE_DICTIONARY",
	9: "BYTE_STREAM_SPLIT",
}

// values is a growing array: flat bytes for fixed widths, or offsets and bytes for byte arrays.
type values struct {
	width   int
	flat    []byte
	offsets []uint32 // n+1 offsets; only for byte arrays
}

func (v *values) len() int {
	if v.width > 0 {
		return len(v.flat) / v.width
	}
	return max(0, len(v.offsets)-1)
}

func (v *values) valueAt(i int) []byte {
	if v.width > 0 {
		return v.flat[i*v.width : (i+1)*v.width]
	}
	return v.flat[v.offsets[i]:v.offsets[i+1]]
}

// grow appends space for n values of fixed width and returns it.
func (v *values) grow(n int) []byte {
	at := len(v.flat)
	need := at + n*v.width
	if need > cap(v.flat) {
		bigger := make([]byte, need, max(need, 2*cap(v.flat)))
		copy(bigger, v.flat)
		v.flat = bigger
	}
	v.flat = v.flat[:need]
	return v.flat[at:need]
}

func (v *values) appendBytes(b []byte) {
	if len(v.offsets) == 0 {
		v.offsets = append(v.offsets, 0)
	}
	v.flat = append(v.flat, b...)
	v.offsets = append(v.offsets, uint32(len(v.flat)))
}

// appendLimited is appendBytes with a limit on the total size.
func (v *values) appendLimited(b []byte, room int64) {
	if int64(len(v.flat))+int64(len(b)) > room {
		tooLarge(room, room+1)
	}
	v.appendBytes(b)
}

// appendPlain appends n values in PLAIN encoding.
func (v *values) appendPlain(b []byte, n int, typ Physical, room int64) {
	switch {
	case typ == Boolean:
		if len(b)*8 < n {
			failParse("booleans end early")
		}
		dst := v.grow(n)
		for i := range dst {
			dst[i] = b[i>>3] >> (i & 7) & 1
		}
	case v.width > 0:
		if len(b)/v.width < n {
			failParse("values end early")
		}
		copy(v.grow(n), b)
	default:
		for range n {
			var item []byte
			item, b = cutLengthPrefixed(b, "a byte array longer than its page")
			v.appendLimited(item, room)
		}
	}
}

// appendIndexed appends dict[i] for every index i.
func (v *values) appendIndexed(dict *values, idx []uint32, room int64) {
	n := uint32(dict.len())
	for _, i := range idx {
		if i >= n {
			failParse("an index outside the dictionary")
		}
	}
	switch v.width {
	case 4:
		dst := v.grow(len(idx))
		for k, i := range idx {
			copy(dst[k*4:k*4+4], dict.flat[i*4:i*4+4])
		}
	case 8:
		dst := v.grow(len(idx))
		for k, i := range idx {
			copy(dst[k*8:k*8+8], dict.flat[i*8:i*8+8])
		}
	case 0:
		for _, i := range idx {
			v.appendLimited(dict.valueAt(int(i)), room)
		}
	default:
		dst := v.grow(len(idx))
		for k, i := range idx {
			copy(dst[k*v.width:(k+1)*v.width], dict.valueAt(int(i)))
		}
	}
}

// appendByteStreamSplit appends n values in BYTE_STREAM_SPLIT encoding.
func (v *values) appendByteStreamSplit(b []byte, n int) {
	if v.width == 0 || len(b)/v.width < n || len(b) != n*v.width {
		failParse("byte stream split: wrong size")
	}
	dst := v.grow(n)
	for k := range v.width {
		s := b[k*n : (k+1)*n]
		for i, c := range s {
			dst[i*v.width+k] = c
		}
	}
}

// appendRLEBools appends n booleans in RLE encoding (4-byte length, width 1).
func (v *values) appendRLEBools(b []byte, n int) {
	const early = "booleans end early"
	runs, _ := cutLengthPrefixed(b, early)
	h := hybridReader{b: runs, width: 1, what: early}
	h.readBytes(v.grow(n), 1)
}

// deltaInts decodes want integers in DELTA_BINARY_PACKED encoding. Arithmetic wraps around, as the
// format requires.
func deltaInts(c *cursor, want int) []int64 {
	block, minis, total, first := c.uvarint(), c.uvarint(), c.uvarint(), c.varint()
	if block == 0 || block > 1<<20 || block%128 != 0 || minis == 0 || minis > block/32 ||
		block%minis != 0 ||
		block/minis%32 != 0 {
		c.fail("bad block size")
	}
	if total != uint64(want) {
		c.fail("another number of values than the page declares")
	}
	if want == 0 {
		return nil
	}
	out := append(make([]int64, 0, want), first)
	per := int(block / minis)
	for len(out) < want {
		minDelta := c.varint()
		for _, w := range c.nextBytes(minis) {
			if len(out) >= want {
				break
			}
			if w > 64 {
				c.fail("bad bit width")
			}
			b, bit := c.nextBytes(uint64(per*int(w)/8)), 0
			for i := 0; i < per && len(out) < want; i++ {
				out = append(out, out[len(out)-1]+minDelta+int64(readBits(b, bit, uint(w))))
				bit += int(w)
			}
		}
	}
	return out
}

// appendDeltas appends n integers in DELTA_BINARY_PACKED encoding.
func (v *values) appendDeltas(b []byte, n int, typ Physical) {
	out := deltaInts(newDeltaCursor(b), n)
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
		failParse("delta encoding of a type that has none")
	}
}

func newDeltaCursor(b []byte) *cursor { return &cursor{b: b, what: "delta encoding"} }

// appendDeltaLengths appends n byte arrays, which are stored as lengths followed by bytes.
func (v *values) appendDeltaLengths(b []byte, n int, room int64) {
	c := newDeltaCursor(b)
	for _, k := range deltaInts(c, n) {
		v.appendLimited(c.nextBytes(uint64(k)), room) // a negative length becomes a very large one
	}
}

// appendDeltaByteArrays appends n byte arrays that share prefixes with the previous array.
func (v *values) appendDeltaByteArrays(b []byte, n int, room int64) {
	c := newDeltaCursor(b)
	prefixes := deltaInts(c, n)
	var last, item []byte
	for i, k := range deltaInts(c, n) {
		p := prefixes[i]
		if p < 0 || p > int64(len(last)) {
			c.fail("a prefix longer than the value before")
		}
		item = append(append(item[:0], last[:p]...), c.nextBytes(uint64(k))...)
		switch {
		case v.width == 0:
			v.appendLimited(item, room)
		case len(item) != v.width:
			c.fail("a value of another length than its type")
		default:
			copy(v.grow(1), item)
		}
		last, item = item, last
	}
}

// hybridReader reads the RLE / bit-packed hybrid encoding of levels, dictionary indices and
// booleans.
type hybridReader struct {
	b     []byte
	width uint
	what  string // error message for a run that is cut off or out of range
	// state of the current run
	left   int
	packed bool
	value  uint32
	bits   int // bit position in b of the next packed value
}

// startRun reads the header of a run.
func (h *hybridReader) startRun() {
	u, n := binary.Uvarint(h.b)
	if n <= 0 || u>>1 == 0 || u>>1 > 1<<31 {
		failParse("%s", h.what)
	}
	h.b = h.b[n:]
	if u&1 == 0 {
		size := int(h.width+7) / 8
		if len(h.b) < size {
			failParse("%s", h.what)
		}
		h.value = 0
		for i := range size {
			h.value |= uint32(h.b[i]) << (8 * i)
		}
		if h.width < 32 && h.value>>h.width != 0 {
			failParse("%s", h.what)
		}
		h.b, h.left, h.packed = h.b[size:], int(u>>1), false
		return
	}
	// Some writers cut off the last group. The values that are present can be read.
	groups := int(u >> 1)
	if h.width == 0 {
		h.left, h.packed, h.value = groups*8, false, 0
		return
	}
	h.left = min(groups*8, len(h.b)*8/int(h.width))
	if h.packed, h.bits = true, 0; h.left == 0 {
		failParse("%s", h.what)
	}
}

// readRun decodes up to len(dst) values of one run.
func (h *hybridReader) readRun(dst []uint32) int {
	if h.left == 0 {
		h.startRun()
	}
	n := min(h.left, len(dst))
	if !h.packed {
		v := h.value
		for i := range dst[:n] {
			dst[i] = v
		}
	} else {
		unpackBits(dst[:n], h.b, h.bits, h.width)
		h.bits += n * int(h.width)
	}
	h.left -= n
	if h.left == 0 && h.packed {
		h.b = h.b[min((h.bits+7)/8, len(h.b)):]
	}
	return n
}

// readBytes decodes exactly len(dst) values, each at most most. It reports whether all values equal
// most.
func (h *hybridReader) readBytes(dst []byte, most uint32) (all bool) {
	var buf [256]uint32
	all = true
	for len(dst) > 0 {
		k := h.readRun(buf[:min(len(buf), len(dst))])
		for i, v := range buf[:k] {
			if v > most {
				failParse("%s", h.what)
			}
			all = all && v == most
			dst[i] = byte(v)
		}
		dst = dst[k:]
	}
	return all
}

// unpackBits reads values of width ≤ 32 bits, least significant bit first.
func unpackBits(dst []uint32, b []byte, bit int, width uint) {
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

// readBits reads a value of width ≤ 64 bits at a bit position. Bits after the end of b are 0.
func readBits(b []byte, bit int, width uint) uint64 {
	at, shift := bit>>3, uint(bit&7)
	var w [16]byte
	copy(w[:9], b[min(at, len(b)):])
	v := binary.LittleEndian.Uint64(w[:])>>shift | uint64(w[8])<<(64-shift)
	return v & (1<<width - 1)
}

// decodeLevels decodes exactly n levels of at most maxLevel. If all are maxLevel, it returns nil
// and true without filling to. This is the usual case: a column that is OPTIONAL but has no nulls.
func decodeLevels(to []uint8, b []byte, n, maxLevel int, wrong string) (out []uint8, allMax bool) {
	h := hybridReader{b: b, width: uint(bits.Len(uint(maxLevel))), what: wrong}
	if n == 0 {
		return nil, true
	}
	if h.startRun(); !h.packed && h.left >= n && int(h.value) == maxLevel {
		return nil, true
	}
	if cap(to) < n {
		to = make([]uint8, n)
	}
	return to[:n], h.readBytes(to[:n], uint32(maxLevel))
}
