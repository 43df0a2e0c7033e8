package video

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/goatnote-inc/robocache/internal/inflate"
)

// pngFile is a PNG that the fast path can decode: complete, with chunks in order, not interlaced.
// All other files go to the standard library, which also finds the error in damaged ones.
type pngFile struct {
	width, height int
	depth, colour byte
	palette       []byte // R, G, B per color
	zlibStream    []byte // the compressed data
	scratch       *pngScratch
}

// Color types of PNG.
const (
	pngGrey      = 0
	pngRGB       = 2
	pngPalette   = 3
	pngGreyAlpha = 4
	pngRGBA      = 6
)

// pngScratch is the memory for one image.
type pngScratch struct{ packed, rows []byte }

// maxPNGScratch limits the memory that is kept for the next image.
const maxPNGScratch = 16 << 20

var pngScratches = sync.Pool{New: func() any { return new(pngScratch) }}

// fastPNG replaces decodeImage and packRGB for common PNGs. done is false if the standard library
// must decode the file.
func fastPNG(b []byte, info StillInfo, rgb []byte) (done bool) {
	return withPNG(b, info, func(p *pngFile) bool {
		rows, ok := p.inflateRows()
		if ok {
			p.packRows(rows, rgb)
		}
		return ok
	})
}

// fastGreyPNG writes a grey image without alpha as little-endian rows of info.DType. done is false
// if the standard library must decode the file.
func fastGreyPNG(b []byte, info StillInfo, out []byte) (done bool) {
	return withPNG(b, info, func(p *pngFile) bool {
		if p.colour != pngGrey || p.depth < 8 {
			return false
		}
		rows, ok := p.inflateRows()
		if !ok {
			return false
		}
		row := len(rows) / p.height // with the filter byte
		for y := range p.height {
			in, to := rows[y*row+1:(y+1)*row], out[y*(row-1):][:row-1]
			if p.depth == 8 {
				copy(to, in)
				continue
			}
			for i := 0; i+1 < len(in); i += 2 { // PNG is big-endian
				to[i], to[i+1] = in[i+1], in[i]
			}
		}
		return true
	})
}

// withPNG parses b, with scratch memory from a pool, and calls use. It returns false if use does,
// or if the fast path cannot decode the file.
func withPNG(b []byte, info StillInfo, use func(*pngFile) bool) bool {
	s := pngScratches.Get().(*pngScratch)
	defer func() {
		if cap(s.rows)+cap(s.packed) <= maxPNGScratch {
			pngScratches.Put(s)
		}
	}()
	p := pngFile{width: info.Width, height: info.Height, scratch: s}
	return p.parseChunks(b) && use(&p)
}

// parseChunks reads the chunks. It returns false if the fast path cannot decode the file.
func (p *pngFile) parseChunks(b []byte) bool {
	s := p.scratch
	s.packed = s.packed[:0]
	parts, closed := 0, false // number of IDAT chunks, and whether another chunk followed them
	at := 8                   // after the signature
	for first := true; ; first = false {
		if len(b)-at < 12 {
			return false
		}
		n := be.Uint32(b[at:]) // bytes of data; length, type and checksum take 12 more
		if n > uint32(len(b)-at-12) {
			return false
		}
		kind, data := string(b[at+4:at+8]), b[at+8:at+8+int(n)]
		checksum := be.Uint32(b[at+8+int(n):])
		isValid := checksum == crc32.ChecksumIEEE(b[at+4:at+8+int(n)])
		if !isValid || first != (kind == "IHDR") { // IHDR must be the first chunk, and only that
			return false
		}
		at += 12 + int(n)
		switch kind {
		case "IHDR":
			// Compression and filter method have one value. Interlaced images are not supported.
			if len(data) != 13 || data[10] != 0 || data[11] != 0 || data[12] != 0 {
				return false
			}
			p.depth, p.colour = data[8], data[9]
		case "PLTE":
			isMisplaced := parts > 0 || p.palette != nil
			isGrey := p.colour == pngGrey || p.colour == pngGreyAlpha
			maxBytes := 3 << min(p.depth, 8)
			hasValidSize := len(data) > 0 && len(data)%3 == 0 && len(data) <= maxBytes
			if isMisplaced || isGrey || !hasValidSize {
				return false
			}
			p.palette = data
		case "tRNS": // alpha is dropped
			hasValidSize := p.colour == pngGrey && n == 2 || p.colour == pngRGB && n == 6 ||
				p.colour == pngPalette && int(n) <= len(p.palette)/3
			if !hasValidSize || parts > 0 {
				return false
			}
		case "IDAT":
			if closed {
				return false
			}
			switch parts++; parts {
			case 1:
				p.zlibStream = data
			case 2:
				s.packed = append(s.packed, p.zlibStream...)
				fallthrough
			default:
				s.packed = append(s.packed, data...)
				p.zlibStream = s.packed
			}
		case "IEND":
			return n == 0 && parts > 0 && p.isSupported()
		default:
			if kind[0]&0x20 == 0 { // an unknown critical chunk
				return false
			}
			closed = parts > 0
		}
	}
}

// depths holds the valid sample depths of each color type, as bit sets.
var depths = [7]uint32{
	pngGrey:      1<<1 | 1<<2 | 1<<4 | 1<<8 | 1<<16,
	pngRGB:       1<<8 | 1<<16,
	pngPalette:   1<<1 | 1<<2 | 1<<4 | 1<<8,
	pngGreyAlpha: 1<<8 | 1<<16,
	pngRGBA:      1<<8 | 1<<16,
}

// isSupported reports whether the depth is valid for the color type.
func (p *pngFile) isSupported() bool {
	hasPalette := p.colour != pngPalette || p.palette != nil // if it needs one
	return p.colour < 7 && depths[p.colour]>>p.depth&1 == 1 && hasPalette
}

// samplesPerPixel returns the number of samples per pixel. isSupported must have returned true.
func (p *pngFile) samplesPerPixel() int {
	return [7]int{pngGrey: 1, pngRGB: 3, pngPalette: 1, pngGreyAlpha: 2, pngRGBA: 4}[p.colour]
}

// inflateRows decompresses the image and reverses the filters. It returns height rows, each after
// its filter byte.
func (p *pngFile) inflateRows() ([]byte, bool) {
	bits := p.samplesPerPixel() * int(p.depth)
	row := 1 + (p.width*bits+7)/8
	need := row * p.height // the number of pixels was checked against the limits
	// Deflate compresses by at most 1032 to 1, so a shorter stream cannot contain the image.
	if int64(need) > int64(len(p.zlibStream))*1032+64 {
		return nil, false
	}
	if cap(p.scratch.rows) < need {
		p.scratch.rows = make([]byte, need)
	}
	out := p.scratch.rows[:need]
	if n, read, err := inflate.Some(inflate.ZlibStream, out, p.zlibStream); err != nil ||
		n != need || read != len(p.zlibStream) {
		return nil, false
	}
	var above []byte
	for y := range p.height {
		line := out[y*row : (y+1)*row]
		if !unfilterRow(line[0], line[1:], above, max(bits/8, 1)) {
			return nil, false
		}
		above = line[1:]
	}
	return out, true
}

// packRows writes the rows as R, G, B.
func (p *pngFile) packRows(rows, rgb []byte) {
	row := len(rows) / p.height
	if p.depth >= 8 && p.colour != pngPalette {
		sampleBytes := int(p.depth) / 8
		pixelBytes := p.samplesPerPixel() * sampleBytes
		green, blue := 0, 0 // offsets in the pixel; grey has one sample for all
		if p.samplesPerPixel() > 2 {
			green, blue = sampleBytes, 2*sampleBytes
		}
		packPixels(rgb, rows[1:], row, p.width, p.height, pixelBytes, 0, green, blue)
		return
	}
	var table [256][3]byte // R, G, B of each sample value
	for v := range table {
		if at := 3 * v; p.colour == pngGrey {
			g := byte(v * 255 / (1<<p.depth - 1))
			table[v] = [3]byte{g, g, g}
		} else if at+3 <= len(p.palette) { // an index beyond the palette is black, like in PIL
			table[v] = [3]byte(p.palette[at:])
		}
	}
	for y := range p.height {
		in, to := rows[y*row+1:(y+1)*row], rgb[3*p.width*y:][:3*p.width]
		for x := range to[:p.width] {
			bit := x * int(p.depth)
			sample := in[bit/8] >> (8 - int(p.depth) - bit%8) & (1<<p.depth - 1)
			c := &table[sample]
			to[3*x], to[3*x+1], to[3*x+2] = c[0], c[1], c[2]
		}
	}
}

// unfilterRow reverses a PNG filter in place. above is nil for the first row. n is the bytes per
// pixel, at least 1.
func unfilterRow(kind byte, line, above []byte, n int) bool {
	switch kind {
	case 0: // None
	case 1:
		unfilterSub(line, n)
	case 2: // Up
		if above != nil {
			addBytes(line, above)
		}
	case 3: // Average
		for i := range line {
			sum := 0
			if i >= n {
				sum = int(line[i-n])
			}
			if above != nil {
				sum += int(above[i])
			}
			line[i] += byte(sum / 2)
		}
	case 4: // Paeth
		if above == nil { // the predictor is the left pixel
			unfilterSub(line, n)
			break
		}
		unfilterPaeth(line, above, n)
	default:
		return false
	}
	return true
}

// unfilterSub reverses the filter Sub, which predicts from the left pixel.
func unfilterSub(line []byte, n int) {
	switch n {
	case 3:
		var a, b, c byte
		for len(line) >= 3 {
			a, b, c = a+line[0], b+line[1], c+line[2]
			line[0], line[1], line[2] = a, b, c
			line = line[3:]
		}
	case 4:
		var a, b, c, d byte
		for len(line) >= 4 {
			a, b, c, d = a+line[0], b+line[1], c+line[2], d+line[3]
			line[0], line[1], line[2], line[3] = a, b, c, d
			line = line[4:]
		}
	default:
		for i := n; i < len(line); i++ {
			line[i] += line[i-n]
		}
	}
}

// addBytes adds each byte of b to the byte of a, modulo 256. It adds eight bytes at a time in one
// 64-bit word. The low 7 bits of each byte are added without a carry to the next byte, and the high
// bits are then added by exclusive or.
func addBytes(a, b []byte) {
	const low7 = 0x7f7f7f7f7f7f7f7f
	le := binary.LittleEndian
	b = b[:len(a)]
	for len(a) >= 8 {
		x, y := le.Uint64(a), le.Uint64(b)
		lowSum, highSum := x&low7+y&low7, (x^y)&^low7
		le.PutUint64(a, lowSum^highSum)
		a, b = a[8:], b[8:]
	}
	for i := range a {
		a[i] += b[i]
	}
}

// unfilterPaeth reverses the filter Paeth.
func unfilterPaeth(line, above []byte, n int) {
	above = above[:len(line)]
	if n == 3 { // three independent chains
		var a0, a1, a2, c0, c1, c2 int32
		for len(line) >= 3 && len(above) >= 3 {
			b0, b1, b2 := int32(above[0]), int32(above[1]), int32(above[2])
			a0 = int32(byte(int32(line[0]) + paethPredictor(a0, b0, c0)))
			a1 = int32(byte(int32(line[1]) + paethPredictor(a1, b1, c1)))
			a2 = int32(byte(int32(line[2]) + paethPredictor(a2, b2, c2)))
			line[0], line[1], line[2] = byte(a0), byte(a1), byte(a2)
			c0, c1, c2 = b0, b1, b2
			line, above = line[3:], above[3:]
		}
		return
	}
	for k := range min(n, len(line)) {
		var a, c int32
		for i := k; i < len(line); i += n {
			b := int32(above[i])
			a = int32(byte(int32(line[i]) + paethPredictor(a, b, c)))
			line[i] = byte(a)
			c = b
		}
	}
}

// paethPredictor returns a (left), b (above) or c (above left), the one nearest to a + b − c.
func paethPredictor(a, b, c int32) int32 {
	pa, pb := b-c, a-c
	pc := pa + pb
	pa, pb, pc = absInt32(pa), absInt32(pb), absInt32(pc)
	if pb < pa {
		pa, a = pb, b
	}
	if pc < pa {
		a = c
	}
	return a
}

// absInt32 returns the absolute value of v without a branch.
func absInt32(v int32) int32 {
	s := v >> 31 // 0, or −1 if v is negative
	return (v ^ s) - s
}
