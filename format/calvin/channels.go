package calvin

import (
	"encoding/binary"
	"unsafe"
)

// channels copies width bytes of every step bytes of src. dst is as long as what comes of it; src may end with the last width bytes.
func channels(dst, src []byte, step, width int) {
	at, p := 0, 0
	switch {
	case step == 6 && width == 3 && len(src) >= 8:
		// Two sensors of three bytes: four pixels in three words. The last word that is read is two bytes longer than its pixel.
		at = 12 * min((len(src)-2)/24, len(dst)/12)
		p = 2 * at
		d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
		for i := 0; i < at; i += 12 {
			x := unsafe.Add(s, 2*i)
			a, b, c, e := word(x), word(unsafe.Add(x, 6)), word(unsafe.Add(x, 12)), word(unsafe.Add(x, 18))
			binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(d, i))[:], a&0xffffff|b&0xffffff<<24|c<<48)
			binary.LittleEndian.PutUint32((*[4]byte)(unsafe.Add(d, i+8))[:], uint32(c>>16&0xff|e&0xffffff<<8))
		}
	case step == 8 && width == 4:
		n := min(len(src)/8, len(dst)/4)
		at, p = 4*n, 8*n
		d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
		for i := range n {
			*(*[4]byte)(unsafe.Add(d, 4*i)) = *(*[4]byte)(unsafe.Add(s, 8*i))
		}
	}
	for ; p+width <= len(src) && at+width <= len(dst); p, at = p+step, at+width {
		copy(dst[at:at+width], src[p:p+width])
	}
}

func word(p unsafe.Pointer) uint64 { return binary.LittleEndian.Uint64((*[8]byte)(p)[:]) }
