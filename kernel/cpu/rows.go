package cpu

import (
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel"
)

// region says which rows of the views a plan is about.
type region struct {
	b, row      int // of the result: entry, first row
	batch, from int // of the source: entry, first row
	sources     int // rows of the source
	left, right int // columns that are made
}

// rows makes the planned rows of one stream, and returns their validity. It is false where
// kernel.Resample refuses.
func (w *worker) rows(s *stream, at region, samples []int64) ([]uint8, bool) {
	p := &w.plan
	n := len(p.Kind)
	if s.cols == 0 || n == 0 {
		return p.Valid, true
	}
	if s.kernel == nil || s.general {
		return w.reference(s, at, samples)
	}
	dst, src := s.dst.at(at.b, at.row), unsafe.Pointer(nil)
	if at.sources > 0 {
		src = s.src.at(at.batch, at.from)
	}
	w.args = s.args
	valid := p.Valid
	if s.least > 0 {
		w.valid = append(w.valid[:0], valid...) // the plan may be other streams' too
		valid = w.valid
	}
	peak := uint16(0)
	for i := 0; i < n; {
		j := n
		zero := false
		if !w.plain {
			zero = p.Kind[i] == kernel.Zero
			for j = i + 1; j < n && (p.Kind[j] == kernel.Zero) == zero; j++ {
			}
		}
		switch {
		case zero:
			s.zeros(unsafe.Add(dst, i*s.args.dstStep), j-i, at)
		case j-i < s.least:
			if !w.few(s, at, valid, i, j) {
				return nil, false
			}
		default:
			if s.least > 0 {
				w.args.valid = &valid[i]
			}
			peak = max(peak, w.piece(s, dst, src, i, j, at))
			if s.least > 0 && w.args.limits[0] != 0 && !w.left(s, at, valid, i, j) {
				return nil, false
			}
		}
		i = j
	}
	if s.infinity != 0 && peak >= s.infinity {
		return w.reference(s, at, samples) // once more, to count
	}
	return valid, true
}

// left makes those of rows from … to-1 that the kernel left to the reference.
func (w *worker) left(s *stream, at region, valid []uint8, from, to int) bool {
	for i := from; i < to; i++ {
		if valid[i] == 2 && !w.few(s, at, valid, i, i+1) {
			return false
		}
	}
	return true
}

// few makes rows from … to-1, fewer than the kernel can, by kernel.Resample.
func (w *worker) few(s *stream, at region, valid []uint8, from, to int) bool {
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
	return kernel.Resample(
		s.dst.matrix(at.b, at.row+from, to-from, s.cols),
		s.src.matrix(at.batch, at.from, at.sources, s.cols),
		&part,
		opt,
	) == nil
}

// piece makes rows from … to-1, a block of columns at a time where a normalisation's table is
// shorter than a row.
func (w *worker) piece(s *stream, dst, src unsafe.Pointer, from, to int, at region) (peak uint16) {
	p, a := &w.plan, &w.args
	a.left, a.right, a.weight, a.rows = &p.Left[from], &p.Right[from], &p.Weight[from], to-from
	dst = unsafe.Add(dst, from*a.dstStep)
	in, out := s.src.dtype.Size(), s.dst.dtype.Size()
	for c := at.left; c < at.right; {
		n, entry := s.table.block(c, at.right-c)
		a.cols = n
		if s.moves {
			a.cols *= in
		}
		if entry >= 0 {
			a.a, a.b = &s.table.a[entry], &s.table.b[entry]
		}
		a.dst, a.src = unsafe.Add(dst, c*out), unsafe.Add(src, c*in)
		s.kernel(a)
		if s.infinity != 0 {
			peak = max(peak, a.peak())
		}
		c += n
	}
	return peak
}

func (s *stream) zeros(dst unsafe.Pointer, rows int, at region) {
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

// reference makes the rows by kernel.Resample: types, strides and modes that have no kernel.
func (w *worker) reference(s *stream, at region, samples []int64) ([]uint8, bool) {
	p := &w.plan
	w.valid = resize(w.valid, len(p.Valid))
	opt := kernel.Options{
		Rule:     *s.rule,
		Epilogue: *s.epilogue,
		Samples:  samples,
		Valid:    w.valid,
		Counts:   &w.counts,
	}
	if err := kernel.Resample(
		s.dst.matrix(at.b, at.row, len(p.Kind), s.cols),
		s.src.matrix(at.batch, at.from, at.sources, s.cols),
		p,
		opt,
	); err != nil {
		return nil, false
	}
	return w.valid, true
}
