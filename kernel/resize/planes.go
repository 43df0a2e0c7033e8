package resize

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

// Plane is one channel of an image in memory that holds more.
type Plane struct {
	Pix           []byte // from the first pixel on
	Row           int    // bytes from one row to the next
	Step          int    // bytes from one pixel to the next: 1 for planes, 3 for interleaved pixels
	Left, Top     int    // first column and row of the scaled image that is written
	Width, Height int
}

// scratch is reusable memory for one image.
type scratch struct {
	bytes  []byte
	floats []float32
	ints   []int32
	pairs  []uint64
	line   []byte // the result of vector instructions
	words  []int16
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// Plane scales one channel. src has rows of stride bytes. dst receives the part of the scaled image
// that it names. dst must not overlap src.
func (s *Scaler) Plane(dst Plane, src []byte, stride int) {
	buffers := scratchPool.Get().(*scratch)
	defer scratchPool.Put(buffers)
	switch {
	case s.scaleVectors(dst, src, stride, buffers):
	case s.Arithmetic == Floats:
		s.scaleFloats(dst, src, stride, buffers)
	case s.Arithmetic == Fixed:
		s.scaleFixed(dst, src, stride, buffers)
	case s.X.Shift == 0:
		s.selectPixels(dst, src, stride)
	default:
		s.scaleBytes(dst, src, stride, buffers)
	}
}

// selectPixels copies the pixels that the nearest filter selects.
func (s *Scaler) selectPixels(dst Plane, src []byte, stride int) {
	for y := range dst.Height {
		from := src[int(s.Y.First[dst.Top+y])*stride:]
		to := dst.Pix[y*dst.Row:]
		for x, first := range s.X.First[dst.Left:][:dst.Width] {
			to[x*dst.Step] = from[first]
		}
	}
}

// rowsOf returns the range of source rows that output rows top … top+height-1 use.
func (a *Axis) rowsOf(top, height int) (lo, hi int) {
	lo, hi = a.From, 0
	for i := top; i < top+height; i++ {
		lo, hi = min(lo, int(a.First[i])), max(hi, int(a.First[i])+a.Count(i))
	}
	return lo, hi
}

// clipShifted returns v without its fractional bits, clipped to a byte.
func clipShifted(v int32, shift int32) byte {
	v >>= uint(shift) & 31
	if uint32(v) > 255 {
		v = ^(v >> 31) & 255 // 0 if v is negative, else 255
	}
	return byte(v)
}

// scaleBytes sums in integers. The first pass computes two rows at a time, in the halves of 64-bit
// words, and the second pass eight pixels at a time.
func (s *Scaler) scaleBytes(dst Plane, src []byte, stride int, buffers *scratch) {
	lo, hi := s.Y.rowsOf(dst.Top, dst.Height)
	pitch := dst.Width + 8 // the second pass reads words
	buffers.bytes = slices.Grow(buffers.bytes[:0], (hi-lo+1)*pitch)[:(hi-lo+1)*pitch]
	buffers.pairs = slices.Grow(buffers.pairs[:0], s.X.From+s.X.taps)[:s.X.From+s.X.taps]
	for y := lo; y < hi; y += 2 {
		first := src[y*stride:][:s.X.From]
		second := first
		if y+1 < hi {
			second = src[(y+1)*stride:][:s.X.From]
		}
		pairs := buffers.pairs[:len(first)]
		for x := range pairs {
			pairs[x] = uint64(first[x]) | uint64(second[x])<<32
		}
		out := buffers.bytes[(y-lo)*pitch:]
		s.X.sumPairs(out[:dst.Width], out[pitch:][:dst.Width], buffers.pairs, dst.Left)
	}
	for y := range dst.Height {
		i := dst.Top + y
		rows := buffers.bytes[(int(s.Y.First[i])-lo)*pitch:]
		weights := s.Y.Weights[s.Y.Start[i]:s.Y.Start[i+1]]
		sumRows(dst, y, rows, pitch, weights, s.Y.Shift)
	}
}

// sumPairs computes outputs left, left+1 … of two rows at a time. Each element of pairs holds a
// pixel of the first row in its low half and the pixel below it in its high half. One
// multiplication by a sign-extended weight thus handles both rows.
func (a *Axis) sumPairs(first, second []byte, pairs []uint64, left int) {
	half := uint64(1) << (a.Shift - 1) // rounds half up
	half |= half << 32
	second = second[:len(first)]
	starts := a.First[left:][:len(first)]
	padded := a.padded[left*a.taps:]
	for x, start := range starts {
		sum := half
		values := pairs[start:]
		if a.taps == 8 {
			v, w := (*[8]uint64)(values), (*[8]uint64)(padded[8*x:])
			sum += v[0]*w[0] + v[1]*w[1] + v[2]*w[2] + v[3]*w[3] +
				v[4]*w[4] + v[5]*w[5] + v[6]*w[6] + v[7]*w[7]
			low, high := splitSums(sum)
			first[x], second[x] = clipShifted(low, a.Shift), clipShifted(high, a.Shift)
			continue
		}
		weights := padded[x*a.taps:][:a.taps]
		for ; len(weights) >= 4 && len(values) >= 4; weights, values = weights[4:], values[4:] {
			v, w := (*[4]uint64)(values), (*[4]uint64)(weights)
			sum += v[0]*w[0] + v[1]*w[1] + v[2]*w[2] + v[3]*w[3]
		}
		low, high := splitSums(sum)
		first[x], second[x] = clipShifted(low, a.Shift), clipShifted(high, a.Shift)
	}
}

// splitSums returns the two signed sums that the halves of a word hold. A negative low sum has
// borrowed 1 from the high half; the subtraction restores it.
func splitSums(sum uint64) (low, high int32) {
	low = int32(sum)
	return low, int32((sum - uint64(int64(low))) >> 32)
}

// sumRows computes row y of dst as the weighted sum of rows that are pitch bytes apart. It handles
// eight pixels at a time: the words a, b, c and d hold the sums of pixels 0 and 4, 1 and 5, 2 and
// 6, 3 and 7.
func sumRows(dst Plane, y int, rows []byte, pitch int, weights []int32, shift int32) {
	const mask = 0x000000ff000000ff
	half := uint64(1) << (shift - 1) // rounds half up
	half |= half << 32
	to := dst.Pix[y*dst.Row:]
	var out [8]byte
	for x := 0; x < dst.Width; x += 8 {
		a, b, c, d := half, half, half, half
		at := x
		for _, w := range weights {
			v, w := binary.LittleEndian.Uint64(rows[at:]), uint64(int64(w))
			a += v & mask * w
			b += v >> 8 & mask * w
			c += v >> 16 & mask * w
			d += v >> 24 & mask * w
			at += pitch
		}
		for k, v := range [4]uint64{a, b, c, d} {
			low, high := splitSums(v)
			out[k], out[k+4] = clipShifted(low, shift), clipShifted(high, shift)
		}
		storePixels(to, &out, x, min(dst.Width-x, 8), dst.Step)
	}
}

// storePixels writes n pixels to a row from column x on. step is the number of bytes between
// pixels.
func storePixels(to []byte, pixels *[8]byte, x, n, step int) {
	if step == 1 {
		copy(to[x:], pixels[:n])
		return
	}
	to = to[x*step:]
	for k := range n {
		to[k*step] = pixels[k]
	}
}

// roundToByte rounds half to even and clips. The sum with 1.5·2^23 has no fractional bits, so its
// low bits are the rounded value. 0x4b400000 are the bits of 1.5·2^23.
func roundToByte(v float32) byte {
	i := int32(math.Float32bits(v+12582912)) - 0x4b400000
	if uint32(i) > 255 {
		i = ^(i >> 31) & 255 // 0 if i is negative, else 255
	}
	return byte(i)
}

// byteReals holds each byte as float32. A load is faster than a conversion.
var byteReals = func() (out [256]float32) {
	for i := range out {
		out[i] = float32(i)
	}
	return out
}()

// scaleFloats sums in float32. Conversions round each product, so that no compiler fuses it into a
// sum.
func (s *Scaler) scaleFloats(dst Plane, src []byte, stride int, buffers *scratch) {
	lo, hi := s.Y.rowsOf(dst.Top, dst.Height)
	pitch := (dst.Width + 3) &^ 3
	size := (hi-lo)*pitch + s.X.From + s.X.taps
	buffers.floats = slices.Grow(buffers.floats[:0], size)[:size]
	line := buffers.floats[(hi-lo)*pitch:]
	clear(line[s.X.From:]) // it is multiplied by zeros, and must not be NaN
	for y := lo; y < hi; y++ {
		for x, v := range src[y*stride:][:s.X.From] {
			line[x] = byteReals[v]
		}
		s.X.sumReals(buffers.floats[(y-lo)*pitch:][:dst.Width], line, dst.Left)
	}
	for y := range dst.Height {
		i := dst.Top + y
		rows := buffers.floats[(int(s.Y.First[i])-lo)*pitch:]
		s.sumFloatRows(dst, y, rows, pitch, s.Y.Floats[s.Y.Start[i]:s.Y.Start[i+1]])
	}
}

// sumReals computes outputs left, left+1 … of a row in float32. The conversions round each product,
// so that no compiler fuses it into a sum. paddedReal has a multiple of four weights per output, so
// the loop over four leaves none.
func (a *Axis) sumReals(out, line []float32, left int) {
	padded := a.paddedReal[left*a.taps:]
	for x, start := range a.First[left:][:len(out)] {
		values := line[start:]
		if a.taps == 4 {
			v, w := (*[4]float32)(values), (*[4]float32)(padded[4*x:])
			sum := float32(v[0]*w[0]) + float32(v[1]*w[1])
			sum += float32(v[2] * w[2])
			out[x] = sum + float32(v[3]*w[3])
			continue
		}
		sum := float32(0)
		weights := padded[x*a.taps:][:a.taps]
		for ; len(weights) >= 4 && len(values) >= 4; weights, values = weights[4:], values[4:] {
			v, w := (*[4]float32)(values), (*[4]float32)(weights)
			sum += float32(v[0] * w[0])
			sum += float32(v[1] * w[1])
			sum += float32(v[2] * w[2])
			sum += float32(v[3] * w[3])
		}
		out[x] = sum
	}
}

// sumFloatRows computes row y of dst as the weighted sum of rows that are pitch numbers apart, four
// pixels at a time.
func (s *Scaler) sumFloatRows(dst Plane, y int, rows []float32, pitch int, weights []float32) {
	to := dst.Pix[y*dst.Row:]
	var out [8]byte
	for x := 0; x < dst.Width; x += 4 {
		var a, b, c, d float32
		at := x
		for _, w := range weights {
			v := (*[4]float32)(rows[at:])
			a += float32(v[0] * w)
			b += float32(v[1] * w)
			c += float32(v[2] * w)
			d += float32(v[3] * w)
			at += pitch
		}
		for k, v := range [4]float32{a, b, c, d} {
			out[k] = roundToByte(float32(v*s.Gain) + s.Bias)
		}
		storePixels(to, &out, x, min(dst.Width-x, 4), dst.Step)
	}
}

// scaleFixed blends two columns and then two rows. Rows that no output uses are not computed.
func (s *Scaler) scaleFixed(dst Plane, src []byte, stride int, buffers *scratch) {
	n := dst.Width
	buffers.ints = slices.Grow(buffers.ints[:0], 2*n)[:2*n]
	// Two blended source rows are kept, even rows in slot 0 and odd rows in slot 1. held has their
	// numbers.
	lines, held := [2][]int32{buffers.ints[:n], buffers.ints[n:]}, [2]int{-1, -1}
	line := func(y int) []int32 {
		y = min(max(y, 0), s.Y.From-1)
		slot := y & 1
		if held[slot] != y {
			held[slot] = y
			s.X.blendColumns(lines[slot], src[y*stride:][:s.X.From], dst.Left)
		}
		return lines[slot]
	}
	for y := range dst.Height {
		i := dst.Top + y
		first, second := line(int(s.Y.First[i])), line(int(s.Y.First[i])+1)
		low, high := s.Y.Weights[2*i], s.Y.Weights[2*i+1]
		to := dst.Pix[y*dst.Row:]
		if second = second[:len(first)]; dst.Step == 1 {
			to = to[:len(first)]
			for x, v := range first {
				to[x] = blendRows(v, second[x], low, high)
			}
			continue
		}
		for x, v := range first {
			to[x*dst.Step] = blendRows(v, second[x], low, high)
		}
	}
}

// blendColumns computes the outputs of a source row from column left on, as sums with 11 fractional
// bits.
func (a *Axis) blendColumns(out []int32, row []byte, left int) {
	blends := a.blends[left:][:len(out)]
	for x := range out {
		b := &blends[x]
		out[x] = int32(row[b.first])*b.low + int32(row[b.second])*b.high
	}
}

// blendRows blends two sums of columns, with 11 fractional bits, at the weights low and high, which
// have 11 too. Of the 22 bits, each product loses 4 and then 16, as in cv2's vector instructions.
// The sum is rounded half up.
func blendRows(first, second, low, high int32) byte {
	return byte(((low*(first>>4))>>16 + (high*(second>>4))>>16 + 2) >> 2)
}
