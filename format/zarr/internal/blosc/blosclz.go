package blosc

// maxDistance is how far a match of two bytes' offset reaches back; a longer one adds it to a 16-bit offset.
const maxDistance = 8191

// unpackLZ decompresses blosclz, a byte-oriented LZ77 in the way of FastLZ: a control byte below 32 begins that many literals and one more;
// another is a match whose length is in its upper three bits.
func unpackLZ(dst, src []byte) (int, error) {
	if len(src) == 0 {
		return 0, bad("an empty stream")
	}
	at := 0
	ctrl, src := int(src[0]&31), src[1:]
	for {
		if ctrl < 32 {
			n := ctrl + 1
			if n > len(dst)-at || n > len(src) {
				return 0, bad("literals beyond the stream")
			}
			copy(dst[at:at+n], src)
			at, src = at+n, src[n:]
		} else {
			n, offset := ctrl>>5-1, ctrl&31<<8
			if n == 6 {
				for {
					if len(src) == 0 {
						return 0, bad("a match is cut")
					}
					c := src[0]
					src = src[1:]
					n += int(c)
					if n > len(dst) {
						return 0, bad("a match beyond the stream")
					}
					if c != 255 {
						break
					}
				}
			}
			if len(src) == 0 {
				return 0, bad("a match is cut")
			}
			c := int(src[0])
			src = src[1:]
			n += 3
			back := offset + c + 1
			if c == 255 && offset == 31<<8 {
				if len(src) < 2 {
					return 0, bad("a match is cut")
				}
				back = int(src[0])<<8 + int(src[1]) + maxDistance + 1
				src = src[2:]
			}
			if back > at || n > len(dst)-at {
				return 0, bad("a match outside the stream")
			}
			from := at - back
			if back >= n {
				copy(dst[at:at+n], dst[from:])
				at += n
			} else {
				// The match overlaps what it makes: doubling what is there copies in few steps.
				for end := at + n; at < end; {
					at += copy(dst[at:end], dst[from:at])
				}
			}
		}
		if len(src) == 0 {
			return at, nil
		}
		ctrl, src = int(src[0]), src[1:]
	}
}
