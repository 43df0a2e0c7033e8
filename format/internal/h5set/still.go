package h5set

import "bytes"

// Trim cuts what follows a JPEG or PNG image off: rows are filled up to the longest, and lengths that are stored beside are not always right.
func Trim(b []byte) []byte {
	n := 0
	switch {
	case len(b) > 3 && b[0] == 0xff && b[1] == 0xd8:
		n = jpegEnd(b)
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		n = pngEnd(b)
	}
	if n == 0 {
		return bytes.TrimRight(b, "\x00")
	}
	return b[:n:n]
}

// jpegEnd finds the end marker; 0 where there is none.
func jpegEnd(b []byte) int {
	for i := 2; i+1 < len(b); {
		if b[i] != 0xff {
			return 0
		}
		m := b[i+1]
		switch {
		case m == 0xff: // filling
			i++
		case m == 0xd9:
			return i + 2
		case m == 0x01 || m >= 0xd0 && m <= 0xd7:
			i += 2
		default:
			if i+3 >= len(b) {
				return 0
			}
			i += 2 + int(b[i+2])<<8 + int(b[i+3])
			if m != 0xda {
				continue
			}
			// The scan: up to a marker that is none of its own.
			for {
				if i >= len(b) {
					return 0
				}
				k := bytes.IndexByte(b[i:], 0xff)
				if k < 0 || i+k+1 >= len(b) {
					return 0
				}
				i += k
				if m := b[i+1]; m == 0 || m >= 0xd0 && m <= 0xd7 {
					i += 2
					continue
				}
				break
			}
		}
	}
	return 0
}

// pngEnd finds the end of the IEND chunk; 0 where there is none.
func pngEnd(b []byte) int {
	for i := 8; i+12 <= len(b); {
		n := int(b[i])<<24 | int(b[i+1])<<16 | int(b[i+2])<<8 | int(b[i+3])
		if n > len(b)-i-12 {
			return 0
		}
		last := string(b[i+4:i+8]) == "IEND"
		if i += 12 + n; last {
			return i
		}
	}
	return 0
}
