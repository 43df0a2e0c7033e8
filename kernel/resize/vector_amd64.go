//go:build !purego

package resize

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// hasVectors reports whether the assembly can run. Tests clear it.
var hasVectors = cpu.X86.HasAVX2 && cpu.X86.HasOSXSAVE

// sumColumns computes groups of eight outputs of a row, with steps loads each. It rounds by
// removing shift bits.
//
//go:noescape
func sumColumns(out, row *byte, loads *tapLoad, groups, steps, shift int)

// sumByteRows computes blocks of 16 outputs from pairs of rows that are pitch bytes apart.
//
//go:noescape
func sumByteRows(out, rows *byte, pitch int, weights *[2]uint32, pairs, blocks, shift int)

// sumFloatColumns computes groups of eight outputs of a row, with steps loads each.
//
//go:noescape
func sumFloatColumns(out *float32, row *byte, loads *tapLoad, groups, steps int)

// sumFloatLines computes blocks of 16 outputs from taps rows that are pitch floats apart.
//
//go:noescape
func sumFloatLines(
	out *byte, rows *float32, pitch int, weights *float32, taps, blocks int, gain, bias float32,
)

// blendPairs computes groups of eight sums of two samples of a row, without their 4 lowest bits.
//
//go:noescape
func blendPairs(out *int16, row *byte, loads *tapLoad, groups int)

// blendLines computes blocks of 16 outputs from two rows, as blendRows.
//
//go:noescape
func blendLines(out *byte, first, second *int16, low, high, blocks int)

// scaleVectors scales a channel with vector instructions. It returns false if it cannot.
func (s *Scaler) scaleVectors(dst Plane, src []byte, stride int, buffers *scratch) bool {
	if s.X.loads == nil || dst.Width < 1 || dst.Height < 1 {
		return false
	}
	v := layOutRows(dst)
	buffers.line = slices.Grow(buffers.line[:0], 16*v.blocks)[:16*v.blocks]
	switch s.Arithmetic {
	case Bytes:
		s.scaleByteVectors(dst, src, stride, buffers, v)
	case Floats:
		s.scaleFloatVectors(dst, src, stride, buffers, v)
	default:
		s.scaleFixedVectors(dst, src, stride, buffers, v)
	}
	return true
}

// loadsFrom returns the loads of the groups from a column on.
func (a *Axis) loadsFrom(column int) *tapLoad { return &a.loads[column/8*a.steps] }

// scaleByteVectors is scaleBytes with vector instructions.
func (s *Scaler) scaleByteVectors(
	dst Plane, src []byte, stride int, buffers *scratch, v vectorRows,
) {
	lo, hi := s.Y.rowsOf(dst.Top, dst.Height)
	// The last pair of rows may exceed the rows that are used; its weight is 0.
	size := (hi - lo + 2*s.Y.steps + 1) * v.pitch
	buffers.bytes = slices.Grow(buffers.bytes[:0], size)[:size]
	for y := lo; y < hi; y++ {
		row := src[y*stride:][:s.X.From]
		sumColumns(&buffers.bytes[(y-lo)*v.pitch], &row[0], s.X.loadsFrom(v.column), v.groups,
			s.X.steps, int(s.X.Shift))
	}
	for y := range dst.Height {
		i := dst.Top + y
		at := (int(s.Y.First[i])-lo)*v.pitch + dst.Left - v.column
		sumByteRows(&buffers.line[0], &buffers.bytes[at], v.pitch, &s.Y.rowPairs[i*s.Y.steps],
			s.Y.steps, v.blocks, int(s.Y.Shift))
		dst.storeRow(y, buffers.line)
	}
}

// scaleFloatVectors is scaleFloats with vector instructions.
func (s *Scaler) scaleFloatVectors(
	dst Plane, src []byte, stride int, buffers *scratch, v vectorRows,
) {
	lo, hi := s.Y.rowsOf(dst.Top, dst.Height)
	size := (hi - lo + 1) * v.pitch
	buffers.floats = slices.Grow(buffers.floats[:0], size)[:size]
	for y := lo; y < hi; y++ {
		row := src[y*stride:][:s.X.From]
		sumFloatColumns(&buffers.floats[(y-lo)*v.pitch], &row[0], s.X.loadsFrom(v.column), v.groups,
			s.X.steps)
	}
	for y := range dst.Height {
		i := dst.Top + y
		weights := s.Y.Floats[s.Y.Start[i]:s.Y.Start[i+1]]
		at := (int(s.Y.First[i])-lo)*v.pitch + dst.Left - v.column
		sumFloatLines(&buffers.line[0], &buffers.floats[at], v.pitch, &weights[0], len(weights),
			v.blocks, s.Gain, s.Bias)
		dst.storeRow(y, buffers.line)
	}
}

// scaleFixedVectors is scaleFixed with vector instructions. It also keeps two blended source rows.
func (s *Scaler) scaleFixedVectors(
	dst Plane, src []byte, stride int, buffers *scratch, v vectorRows,
) {
	buffers.words = slices.Grow(buffers.words[:0], 2*v.pitch)[:2*v.pitch]
	held := [2]int{-1, -1}
	line := func(y int) *int16 {
		y = min(max(y, 0), s.Y.From-1)
		slot := y & 1
		if held[slot] != y {
			held[slot] = y
			row := src[y*stride:][:s.X.From]
			blendPairs(&buffers.words[slot*v.pitch], &row[0], s.X.loadsFrom(v.column), v.groups)
		}
		return &buffers.words[slot*v.pitch+dst.Left-v.column]
	}
	for y := range dst.Height {
		i := dst.Top + y
		first, second := line(int(s.Y.First[i])), line(int(s.Y.First[i])+1)
		low, high := int(s.Y.Weights[2*i]), int(s.Y.Weights[2*i+1])
		blendLines(&buffers.line[0], first, second, low, high, v.blocks)
		dst.storeRow(y, buffers.line)
	}
}
