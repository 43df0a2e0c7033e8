package synth

// An image has a bar code along its bottom edge: rows of black and white squares, most significant
// bit first. It has 16 bits for the episode, 20 bits for the row, and 8 check bits. Squares of at
// least 6 pixels survive lossy coding of small images.
const (
	codeEpisodeBits = 16
	codeRowBits     = 20
	codeCheckBits   = 8
	codeBits        = codeEpisodeBits + codeRowBits + codeCheckBits
	codeBlack       = 24
	codeWhite       = 232
)

// codeLayout returns the side of a square, the squares per row, and the number of rows.
func codeLayout(width, height int) (side, columns, rows int) {
	side = max(6, height/48)
	columns = width / side
	return side, columns, (codeBits + columns - 1) / columns
}

func codeWord(episode, row int) uint64 {
	w := uint64(episode)<<codeRowBits | uint64(row)
	return w<<codeCheckBits | uint64(check8(w))
}

// check8 returns the CRC-8 (polynomial 0x07) of the word's bytes. It starts at 0x5a, so that an
// all-black or all-white strip is not a valid code.
func check8(w uint64) byte {
	c := byte(0x5a)
	for i := 56; i >= 0; i -= 8 {
		c ^= byte(w >> i)
		for range 8 {
			if c&0x80 != 0 {
				c = c<<1 ^ 7
			} else {
				c <<= 1
			}
		}
	}
	return c
}

// drawCode draws the bar code into an RGB image.
func drawCode(rgb []byte, width, height, episode, row int) {
	side, columns, rows := codeLayout(width, height)
	word := codeWord(episode, row)
	for i := range columns * rows {
		v := byte(codeBlack)
		if i < codeBits && word>>(codeBits-1-i)&1 == 1 {
			v = codeWhite
		}
		x0, y0 := i%columns*side, height-(rows-i/columns)*side
		for y := y0; y < y0+side; y++ {
			line := rgb[(y*width+x0)*3 : (y*width+x0+side)*3]
			for k := range line {
				line[k] = v
			}
		}
	}
}

// ReadCode returns the episode and row in the bar code of an RGB image (8 bits, channels last,
// original size). ok is false if the check fails.
func ReadCode(rgb []byte, width, height int) (episode, row int, ok bool) {
	side, columns, rows := codeLayout(width, height)
	if width < 64 || height < 64 || len(rgb) < width*height*3 || rows*side > height {
		return 0, 0, false
	}
	var word uint64
	for i := range codeBits {
		x0, y0 := i%columns*side, height-(rows-i/columns)*side
		sum, n := 0, 0
		// Only the middle of the square, because its edges are blurred.
		for y := y0 + side/3; y < y0+side-side/3; y++ {
			for x := x0 + side/3; x < x0+side-side/3; x++ {
				p := (y*width + x) * 3
				sum += int(rgb[p]) + int(rgb[p+1]) + int(rgb[p+2])
				n += 3
			}
		}
		word <<= 1
		if sum > n*(codeBlack+codeWhite)/2 {
			word |= 1
		}
	}
	w := word >> codeCheckBits
	return int(w >> codeRowBits), int(w & (maxRows - 1)), byte(word) == check8(w)
}
