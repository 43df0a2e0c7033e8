package calvin

import "encoding/binary"

// channels copies width bytes of every step bytes of src. dst is as long as what comes of it; src may end with the last width bytes.
func channels(dst, src []byte, step, width int) {
	pixels := channelsFast(dst, src, step, width)
	at, p := pixels*width, pixels*step
	if width == 4 { // depth
		for ; p+4 <= len(src) && at+4 <= len(dst); p, at = p+step, at+4 {
			binary.LittleEndian.PutUint32(dst[at:], binary.LittleEndian.Uint32(src[p:]))
		}
	}
	for ; p+width <= len(src) && at+width <= len(dst); p, at = p+step, at+width {
		copy(dst[at:at+width], src[p:p+width])
	}
}
