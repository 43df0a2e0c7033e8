package pq

import (
	"encoding/binary"
	"math/bits"
)

// Encodings of values, by their numbers in the format.
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

// values is a growing array: flat for fixed widths, offsets and bytes for byte arrays.
type values struct {
	width   int
	flat    []byte
	offsets []uint32 // n+1; byte arrays only
}

func (v *values) len() int {
	if v.width > 0 {
		return len(v.flat) / v.width
	}
	return max(0, len(v.offsets)-1)
}

func (v *values) item(i int) []byte {
	if v.width > 0 {
		return v.flat[i*v.width : (i+1)*v.width]
	}
	return v.flat[v.offsets[i]:v.offsets[i+1]]
}

// grow makes room for n more values of fixed width and gives it.
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

func (v *values) add(b []byte) {
	if len(v.offsets) == 0 {
		v.offsets = append(v.offsets, 0)
	}
	v.flat = append(v.flat, b...)
	v.offsets = append(v.offsets, uint32(len(v.flat)))
}

// limited is add, below a limit.
func (v *values) limited(b []byte, room int64) {
	if int64(len(v.flat))+int64(len(b)) > room {
		tooLarge(room, room+1)
	}
	v.add(b)
}

// plain appends n values of the PLAIN encoding.
func (v *values) plain(b []byte, n int, typ Physical, room int64) {
	switch {
	case typ == Boolean:
		if len(b)*8 < n {
			bad("booleans end early")
		}
		dst := v.grow(n)
		for i := range dst {
			dst[i] = b[i>>3] >> (i & 7) & 1
		}
	case v.width > 0:
		if len(b)/v.width < n {
			bad("values end early")
		}
		copy(v.grow(n), b)
	default:
		for range n {
			var item []byte
			item, b = lengthed(b, "a byte array longer than its page")
			v.limited(item, room)
		}
	}
}

// gather appends dict[i] for every index.
func (v *values) gather(dict *values, idx []uint32, room int64) {
	n := uint32(dict.len())
	for _, i := range idx {
		if i >= n {
			bad("an index outside the dictionary")
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
			v.limited(dict.item(int(i)), room)
		}
	default:
		dst := v.grow(len(idx))
		for k, i := range idx {
			copy(dst[k*v.width:(k+1)*v.width], dict.item(int(i)))
		}
	}
}

// split appends n values of BYTE_STREAM_SPLIT.
func (v *values) split(b []byte, n int) {
	if v.width == 0 || len(b)/v.width < n || len(b) != n*v.width {
		bad("byte stream split: wrong size")
	}
	dst := v.grow(n)
	for k := range v.width {
		s := b[k*n : (k+1)*n]
		for i, c := range s {
			dst[i*v.width+k] = c
		}
	}
}

// rleBool appends n booleans of the RLE encoding (4-byte length, width 1).
func (v *values) rleBool(b []byte, n int) {
	const early = "booleans end early"
	runs, _ := lengthed(b, early)
	h := hybrid{b: runs, width: 1, what: early}
	h.bytes(v.grow(n), 1)
}

// deltaInts decodes DELTA_BINARY_PACKED: want integers. Arithmetic wraps, as the format says.
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
		for _, w := range c.take(minis) {
			if len(out) >= want {
				break
			}
			if w > 64 {
				c.fail("bad bit width")
			}
			b, bit := c.take(uint64(per*int(w)/8)), 0
			for i := 0; i < per && len(out) < want; i++ {
				out = append(out, out[len(out)-1]+minDelta+int64(readBits(b, bit, uint(w))))
				bit += int(w)
			}
		}
	}
	return out
}

// delta appends n integers.
func (v *values) delta(b []byte, n int, typ Physical) {
	out := deltaInts(deltas(b), n)
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
		bad("delta encoding of a type that has none")
	}
}

func deltas(b []byte) *cursor { return &cursor{b: b, what: "delta encoding"} }

// deltaLength appends n byte arrays: lengths, then bytes.
func (v *values) deltaLength(b []byte, n int, room int64) {
	c := deltas(b)
	for _, k := range deltaInts(c, n) {
		v.limited(c.take(uint64(k)), room) // a negative one is a large one
	}
}

// deltaBytes appends n byte arrays that share prefixes with their predecessors.
func (v *values) deltaBytes(b []byte, n int, room int64) {
	c := deltas(b)
	prefixes := deltaInts(c, n)
	var last, item []byte
	for i, k := range deltaInts(c, n) {
		p := prefixes[i]
		if p < 0 || p > int64(len(last)) {
			c.fail("a prefix longer than the value before")
		}
		item = append(append(item[:0], last[:p]...), c.take(uint64(k))...)
		switch {
		case v.width == 0:
			v.limited(item, room)
		case len(item) != v.width:
			c.fail("a value of another length than its type")
		default:
			copy(v.grow(1), item)
		}
		last, item = item, last
	}
}

// hybrid walks the RLE / bit-packed hybrid encoding of levels, dictionary indices and booleans.
type hybrid struct {
	b     []byte
	width uint
	what  string // is wrong where a run is cut or out of range
	// the current run
	left   int
	packed bool
	value  uint32
	bits   int // bit position inside b of the next packed value
}

// next starts a run.
func (h *hybrid) next() {
	u, n := binary.Uvarint(h.b)
	if n <= 0 || u>>1 == 0 || u>>1 > 1<<31 {
		bad("%s", h.what)
	}
	h.b = h.b[n:]
	if u&1 == 0 {
		size := int(h.width+7) / 8
		if len(h.b) < size {
			bad("%s", h.what)
		}
		h.value = 0
		for i := range size {
			h.value |= uint32(h.b[i]) << (8 * i)
		}
		if h.width < 32 && h.value>>h.width != 0 {
			bad("%s", h.what)
		}
		h.b, h.left, h.packed = h.b[size:], int(u>>1), false
		return
	}
	// The last group may be cut short by writers that trim it: the values that are there can be
	// read.
	groups := int(u >> 1)
	if h.width == 0 {
		h.left, h.packed, h.value = groups*8, false, 0
		return
	}
	h.left = min(groups*8, len(h.b)*8/int(h.width))
	if h.packed, h.bits = true, 0; h.left == 0 {
		bad("%s", h.what)
	}
}

// take decodes up to len(dst) values of one run.
func (h *hybrid) take(dst []uint32) int {
	if h.left == 0 {
		h.next()
	}
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
		h.b = h.b[min((h.bits+7)/8, len(h.b)):]
	}
	return n
}

// bytes decodes exactly len(dst) values of at most most, and says whether all are that.
func (h *hybrid) bytes(dst []byte, most uint32) (all bool) {
	var buf [256]uint32
	all = true
	for len(dst) > 0 {
		k := h.take(buf[:min(len(buf), len(dst))])
		for i, v := range buf[:k] {
			if v > most {
				bad("%s", h.what)
			}
			all = all && v == most
			dst[i] = byte(v)
		}
		dst = dst[k:]
	}
	return all
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

// levels decodes exactly n levels of at most maxLevel. When all are maxLevel it gives nil and true
// without filling to: the usual case, a column that is OPTIONAL and never null.
func levels(to []uint8, b []byte, n, maxLevel int, wrong string) (out []uint8, allMax bool) {
	h := hybrid{b: b, width: uint(bits.Len(uint(maxLevel))), what: wrong}
	if n == 0 {
		return nil, true
	}
	if h.next(); !h.packed && h.left >= n && int(h.value) == maxLevel {
		return nil, true
	}
	if cap(to) < n {
		to = make([]uint8, n)
	}
	return to[:n], h.bytes(to[:n], uint32(maxLevel))
}
