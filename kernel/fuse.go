package kernel

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Stream is one input of Fuse.
type Stream struct {
	Src  Matrix
	Plan *Plan
	Opt  Options // Valid is not used: Fuse has its own
}

// Fuse resamples the streams into neighbouring columns of dst [T, sum of D], in the order given. valid, where not nil,
// is [T, N]: one byte a row and stream. Streams of several types need no more than dst's: the output type is explicit.
func Fuse(dst Matrix, valid []uint8, streams []Stream) error {
	cols := 0
	for i := range streams {
		s := &streams[i]
		if s.Plan.Len() != dst.Rows {
			return robocache.At(misuse("fuse", "Batch size mismatch (rows of the plans)", strconv.Itoa(dst.Rows), strconv.Itoa(s.Plan.Len())), robocache.Where{"stream": i})
		}
		cols += s.Src.Cols
	}
	if cols != dst.Cols {
		return misuse("fuse", "out has wrong shape", strconv.Itoa(cols)+" columns", strconv.Itoa(dst.Cols))
	}
	n := len(streams)
	if valid != nil && len(valid) != n*dst.Rows {
		return misuse("fuse", "out has wrong shape: valid", strconv.Itoa(n*dst.Rows)+" bytes", strconv.Itoa(len(valid)))
	}
	col := 0
	var chunk [tile]uint8
	for i := range streams {
		s := &streams[i]
		view := dst.Columns(col, s.Src.Cols)
		col += s.Src.Cols
		// In pieces of rows, so that a validity of their own fits on the stack: slerp decides it while it runs.
		for row := 0; row < dst.Rows || row == 0; row += tile {
			k := min(tile, dst.Rows-row)
			part, opt := view, s.Opt
			part.Base += row * view.RowStride
			part.Rows = k
			opt.Valid = chunk[:k]
			piece := s.Plan.slice(row, row+k)
			if err := Resample(part, s.Src, &piece, opt); err != nil {
				return robocache.At(err, robocache.Where{"stream": i})
			}
			for j := range k {
				if valid != nil {
					valid[(row+j)*n+i] = chunk[j]
				}
			}
		}
	}
	return nil
}

// slice is the plan of rows from … to-1.
func (p *Plan) slice(from, to int) Plan {
	q := *p
	q.Kind, q.Left, q.Right, q.Weight, q.Valid = p.Kind[from:to], p.Left[from:to], p.Right[from:to], p.Weight[from:to], p.Valid[from:to]
	return q
}
