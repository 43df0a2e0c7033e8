package cpu

import (
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel"
)

// region locates the rows of a plan in the views of source and result.
type region struct {
	b, row      int // in the result: entry and first row
	batch, from int // in the source: entry and first row
	sources     int // number of rows of the source
	left, right int // columns left … right-1 are computed
}

// makeRows computes the planned rows of one stream and returns their validity. It splits the plan
// into runs of rows: zero rows, and rows for the kernel. It returns false if kernel.Resample
// returns an error.
func (w *worker) makeRows(s *stream, at region, samples []int64) ([]uint8, bool) {
	p := &w.plan
	n := len(p.Kind)
	if s.cols == 0 || n == 0 {
		return p.Valid, true
	}
	if s.kernel == nil || s.referenceOnly {
		return w.referenceRows(s, at, samples)
	}
	dst := s.dst.rowPointer(at.b, at.row)
	src := unsafe.Pointer(nil)
	if at.sources > 0 {
		src = s.src.rowPointer(at.batch, at.from)
	}
	w.args = s.args
	valid := p.Valid
	if s.minRows > 0 {
		// The kernel writes to valid. It gets a copy, because other streams may use the plan.
		w.valid = append(w.valid[:0], valid...)
		valid = w.valid
	}
	peak := uint16(0) // largest magnitude of a 16-bit result
	for i := 0; i < n; {
		j := n
		zero := false
		if !w.allPlain {
			zero = p.Kind[i] == kernel.Zero
			for j = i + 1; j < n && (p.Kind[j] == kernel.Zero) == zero; j++ {
			}
		}
		switch {
		case zero:
			s.zeroRows(unsafe.Add(dst, i*s.args.dstStep), j-i, at)
		case j-i < s.minRows:
			if !w.shortRows(s, at, valid, i, j) {
				return nil, false
			}
		default:
			if s.minRows > 0 {
				w.args.valid = &valid[i]
			}
			peak = max(peak, w.kernelRows(s, dst, src, i, j, at))
			if s.minRows > 0 && w.args.limits[0] != 0 && !w.redoLeftRows(s, at, valid, i, j) {
				return nil, false
			}
		}
		i = j
	}
	if s.infinityBits != 0 && peak >= s.infinityBits {
		return w.referenceRows(s, at, samples) // compute again, to count the overflows
	}
	return valid, true
}

// redoLeftRows computes those of rows from … to-1 that the kernel left to the reference (validity
// 2). It returns false if kernel.Resample returns an error.
func (w *worker) redoLeftRows(s *stream, at region, valid []uint8, from, to int) bool {
	for i := from; i < to; i++ {
		if valid[i] == 2 && !w.shortRows(s, at, valid, i, i+1) {
			return false
		}
	}
	return true
}

// shortRows computes rows from … to-1 with kernel.Resample, because they are fewer than the kernel
// needs. It returns false if kernel.Resample returns an error.
func (w *worker) shortRows(s *stream, at region, valid []uint8, from, to int) bool {
	p := &w.plan
	part := kernel.Plan{
		Mode:    p.Mode,
		Sources: p.Sources,
		Kind:    p.Kind[from:to],
		Left:    p.Left[from:to],
		Right:   p.Right[from:to],
		Weight:  p.Weight[from:to],
		Valid:   p.Valid[from:to],
	}
	opt := kernel.Options{
		Rule:     *s.rule,
		Epilogue: *s.epilogue,
		Valid:    valid[from:to],
		Counts:   &w.counts,
	}
	return kernel.Resample(s.dst.matrixView(at.b, at.row+from, to-from, s.cols),
		s.src.matrixView(at.batch, at.from, at.sources, s.cols), &part, opt) == nil
}

// kernelRows runs the kernel on rows from … to-1. If the normalization table is shorter than a row,
// it runs on one block of columns at a time. The result is the
// largest magnitude among the 16-bit results of these rows, or 0 if overflows are not counted.
func (w *worker) kernelRows(
	s *stream,
	dst, src unsafe.Pointer,
	from, to int,
	at region,
) (peak uint16) {
	p, a := &w.plan, &w.args
	a.left = &p.Left[from]
	a.right = &p.Right[from]
	a.weight = &p.Weight[from]
	a.rows = to - from
	dst = unsafe.Add(dst, from*a.dstStep)
	in, out := s.src.dtype.Size(), s.dst.dtype.Size()
	for c := at.left; c < at.right; {
		n, entry := s.table.columnBlock(c, at.right-c)
		a.cols = n
		if s.copiesBytes {
			a.cols *= in
		}
		if entry >= 0 {
			a.a, a.b = &s.table.a[entry], &s.table.b[entry]
		}
		a.dst, a.src = unsafe.Add(dst, c*out), unsafe.Add(src, c*in)
		s.kernel(a)
		if s.infinityBits != 0 {
			peak = max(peak, a.maxLimit())
		}
		c += n
	}
	return peak
}

// zeroRows writes zero bits to the columns of at in a number of rows. dst is the start of the first
// row.
func (s *stream) zeroRows(dst unsafe.Pointer, rows int, at region) {
	size := s.dst.dtype.Size()
	for i := range rows {
		clear(
			unsafe.Slice(
				(*byte)(unsafe.Add(dst, i*s.args.dstStep+at.left*size)),
				(at.right-at.left)*size,
			),
		)
	}
}

// referenceRows computes the rows with kernel.Resample and returns their validity. It is used for
// types, strides and modes without a kernel. It returns false if kernel.Resample returns an error.
func (w *worker) referenceRows(s *stream, at region, samples []int64) ([]uint8, bool) {
	p := &w.plan
	w.valid = resizeSlice(w.valid, len(p.Valid))
	opt := kernel.Options{
		Rule:     *s.rule,
		Epilogue: *s.epilogue,
		Samples:  samples,
		Valid:    w.valid,
		Counts:   &w.counts,
	}
	if err := kernel.Resample(s.dst.matrixView(at.b, at.row, len(p.Kind), s.cols),
		s.src.matrixView(at.batch, at.from, at.sources, s.cols), p, opt); err != nil {
		return nil, false
	}
	return w.valid, true
}
