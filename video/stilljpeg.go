package video

import "image"

// packYCbCr converts like libjpeg's default: chroma by a triangle filter, and BT.601 full range in
// 16-bit fixed point.
func packYCbCr(m *image.YCbCr, out []byte) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	cb, cr := make([]byte, w+2), make([]byte, w+2)
	for y := range h {
		chromaRow(m, m.Cb, y, cb)
		chromaRow(m, m.Cr, y, cr)
		luma, to := m.Y[y*m.YStride:][:w], out[3*y*w:][:3*w]
		for x, l := range luma {
			b, r := int32(cb[x])-128, int32(cr[x])-128
			v := int32(l)
			p := to[3*x : 3*x+3 : 3*x+3]
			// The factors are 1.402, −0.34414, −0.71414 and 1.772, times 2¹⁶.
			const half = 1 << 15 // rounds to the nearest
			p[0] = clampToByte(v + (91881*r+half)>>16)
			p[1] = clampToByte(v + (-22554*b-46802*r+half)>>16)
			p[2] = clampToByte(v + (116130*b+half)>>16)
		}
	}
}

// clampToByte returns v, limited to 0 to 255.
func clampToByte(v int32) byte {
	if uint32(v) > 255 {
		if v < 0 {
			return 0
		}
		return 255
	}
	return byte(v)
}

// chromaRow writes row y of a chroma plane at full width to to. It interpolates like libjpeg (fancy
// upsampling): a sample has the weight 3/4 of the nearest chroma sample and 1/4 of the next one, in
// each direction that is subsampled.
func chromaRow(m *image.YCbCr, plane []byte, y int, to []byte) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	row := func(i, width int) []byte { return plane[i*m.CStride:][:width] }
	cw, ch := (w+1)/2, (h+1)/2 // size of a plane of half the width and height
	switch {
	case m.SubsampleRatio == image.YCbCrSubsampleRatio444:
		copy(to, row(y, w))
	case m.SubsampleRatio == image.YCbCrSubsampleRatio422 && cw > 2:
		in := row(y, cw)
		for x, v := range in {
			three := 3 * int32(v)
			left, right := in[max(x-1, 0)], in[min(x+1, cw-1)]
			to[2*x], to[2*x+1] = byte((three+int32(left)+1)>>2), byte((three+int32(right)+2)>>2)
		}
		to[0], to[2*cw-1] = in[0], in[cw-1]
	case m.SubsampleRatio == image.YCbCrSubsampleRatio420 && cw > 2:
		near := y / 2 // chroma row that contains row y, and the one on its other side
		far := near - 1
		if y%2 == 1 {
			far = near + 1
		}
		a, b := row(near, cw), row(min(max(far, 0), ch-1), cw)
		sum := func(x int) int32 { return 3*int32(a[x]) + int32(b[x]) } // 4 times the value
		last, this := sum(0), sum(0)
		for x := range cw {
			next := sum(min(x+1, cw-1))
			to[2*x], to[2*x+1] = byte((3*this+last+8)>>4), byte((3*this+next+7)>>4)
			last, this = this, next
		}
	default: // other ratios: libjpeg repeats chroma for these too
		for x := range w {
			to[x] = plane[m.COffset(m.Rect.Min.X+x, m.Rect.Min.Y+y)]
		}
	}
}
