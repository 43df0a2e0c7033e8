package pq

import (
	"encoding/binary"
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

var encodingNames = map[int32]string{0: "PLAIN", 2: "PLAIN_DICTIONARY", 3: "RLE", 4: "BIT_PACKED", 5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY", 8: "RLE_DICTIONARY", 9: "BYTE_STREAM_SPLIT"}

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

// plain appends n values of the PLAIN encoding.
func (v *values) plain(b []byte, n int, typ Physical, room int64) string {
	switch {
	case typ == Boolean:
		if len(b)*8 < n {
			return "booleans end early"
		}
		dst := v.grow(n)
		for i := range dst {
			dst[i] = b[i>>3] >> (i & 7) & 1
		}
	case v.width > 0:
		if len(b)/v.width < n {
			return "values end early"
		}
		copy(v.grow(n), b)
	default:
		for range n {
			if len(b) < 4 {
				return "byte arrays end early"
			}
			k := binary.LittleEndian.Uint32(b)
			if uint64(k) > uint64(len(b)-4) {
				return "a byte array longer than its page"
			}
			if int64(len(v.flat))+int64(k) > room {
				return tooLarge
			}
			v.add(b[4 : 4+k])
			b = b[4+k:]
		}
	}
	return ""
}

const tooLarge = "larger than the limit"

// gather appends dict[i] for every index.
func (v *values) gather(dict *values, idx []uint32, room int64) string {
	n := uint32(dict.len())
	for _, i := range idx {
		if i >= n {
			return "an index outside the dictionary"
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
			b := dict.item(int(i))
			if int64(len(v.flat))+int64(len(b)) > room {
				return tooLarge
			}
			v.add(b)
		}
	default:
		dst := v.grow(len(idx))
		for k, i := range idx {
			copy(dst[k*v.width:(k+1)*v.width], dict.item(int(i)))
		}
	}
	return ""
}

// split appends n values of BYTE_STREAM_SPLIT.
func (v *values) split(b []byte, n int) string {
	if v.width == 0 || len(b)/v.width < n || len(b) != n*v.width {
		return "byte stream split: wrong size"
	}
	dst := v.grow(n)
	for k := range v.width {
		s := b[k*n : (k+1)*n]
		for i, c := range s {
			dst[i*v.width+k] = c
		}
	}
	return ""
}

// rleBool appends n booleans of the RLE encoding (4-byte length, width 1).
func (v *values) rleBool(b []byte, n int) string {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return "booleans end early"
	}
	h := hybrid{b: b[4 : 4+binary.LittleEndian.Uint32(b)], width: 1}
	var buf [256]uint32
	for dst := v.grow(n); len(dst) > 0; {
		if h.left == 0 && !h.next() {
			return "booleans end early"
		}
		k := h.take(buf[:min(len(buf), len(dst))])
		for i, u := range buf[:k] {
			dst[i] = byte(u)
		}
		dst = dst[k:]
	}
	return ""
}
