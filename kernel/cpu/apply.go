package cpu

import (
	"math"
	"sync"

	"github.com/goatnote-inc/robocache/kernel"
)

// runApply computes the rows of each part by its plan.
func (b *Backend) runApply(op *kernel.ApplyOp) error {
	c := applyPool.Get().(*applyRun)
	defer c.release()
	c.prepareParts(op, b.threads)
	if !c.group.runTask(c, len(c.pieces), worthThreads(b.threads, c.bytes)) {
		return kernel.Reference{}.Run(op) // the reference returns the error with its place
	}
	c.group.addCounts(op.Counts)
	return nil
}

// pieceBytes is the smallest number of bytes that one piece of an ApplyOp reads and writes, unless
// the part is smaller.
const pieceBytes = 512 << 10

// applyRun is the state of one ApplyOp while it runs.
type applyRun struct {
	op      *kernel.ApplyOp
	streams []stream
	pieces  []partPiece
	bytes   int
	group   workerGroup
}

// partPiece is a block of rows and columns of one part.
type partPiece struct{ part, from, to, left, right int }

var applyPool = sync.Pool{New: func() any { return new(applyRun) }}

// release drops the references to the operation and returns c to the pool.
func (c *applyRun) release() {
	for i := range c.streams {
		c.streams[i].forgetCaller()
	}
	c.op = nil
	applyPool.Put(c)
}

// prepareParts chooses the kernel of each part and cuts the parts into pieces.
func (c *applyRun) prepareParts(op *kernel.ApplyOp, threads int) {
	c.op = op
	c.bytes = 0
	c.pieces = c.pieces[:0]
	c.streams = resizeSlice(c.streams, len(op.Parts))
	for i := range op.Parts {
		p, s := &op.Parts[i], &c.streams[i]
		rows, cols := p.Out.Shape[0], p.Out.Shape[1]
		s.chooseKernel(
			&p.Rule,
			&p.Epilogue,
			viewOf(&p.Out),
			viewOf(&p.Src),
			cols,
			rowTraits{countsOverflows: op.Counts != nil, isEmpty: rows == 0},
		)
		row := cols * (p.Out.DType.Size() + p.Src.DType.Size())
		c.bytes += rows * row
		c.splitPart(i, rows, cols, row, threads)
	}
}

// splitPart cuts a part into pieces. It cuts by rows, and also by columns if the rows are few and
// long (images). row is the number of bytes that a row reads and writes.
func (c *applyRun) splitPart(part, rows, cols, row, threads int) {
	s := &c.streams[part]
	if rows == 0 || cols == 0 && c.op.Parts[part].Kind == nil {
		return
	}
	most := max(1, rows*row/pieceBytes) // most pieces that the part justifies
	height, width := rows, cols         // of a piece
	if threads > 1 && s.epilogue.Augment == nil {
		height = max(1, (rows+most-1)/most)
		// A row must stay on one thread if its validity is requested or if slerp may leave it to
		// the reference.
		wide := most / rows // pieces per row
		usesKernel := s.kernel != nil && !s.referenceOnly && s.infinityBits == 0
		canCut := s.minRows == 0 && c.op.Parts[part].Valid == nil
		if wide > 1 && usesKernel && canCut {
			width = max(blockCols, (cols/wide+blockCols-1)/blockCols*blockCols)
		}
	}
	for r := 0; r < rows; r += height {
		for l := 0; l < cols || l == 0; l += max(width, 1) {
			c.pieces = append(
				c.pieces,
				partPiece{part, r, min(rows, r+height), l, min(cols, l+width)},
			)
		}
	}
}

// beginWorker implements task. Nothing is kept from piece to piece.
func (c *applyRun) beginWorker(*worker) {}

// runUnit computes piece u. It returns false if the plan is invalid.
func (c *applyRun) runUnit(w *worker, u int) bool {
	k := &c.pieces[u]
	p := &c.op.Parts[k.part]
	s := &c.streams[k.part]
	size := rowsPerPlan // rows per plan; augmentation needs all rows in one plan
	var samples []int64
	if a := p.Epilogue.Augment; a != nil {
		size = k.to - k.from
		if t := a.Samples; t != nil {
			for i := range t.Shape[0] {
				samples = append(samples, int64(le.Uint64(t.Data[(t.Base+i*t.Step(0))*8:])))
			}
		}
	}
	for r := k.from; r < k.to; r += size {
		n := min(size, k.to-r)
		usable, ok := w.loadPlan(p, s, r, n)
		if !ok {
			return false
		}
		at := region{row: r, sources: p.Src.Shape[0], left: k.left, right: k.right}
		var valid []uint8
		if usable {
			valid, ok = w.makeRows(s, at, samples)
		} else if k.left == 0 {
			valid, ok = w.referenceRows(s, at, samples) // this piece computes all columns
		}
		if !ok {
			return false
		}
		if p.Valid != nil && k.left == 0 {
			for i, v := range valid {
				p.Valid.Data[p.Valid.Base+(r+i)*p.Valid.Step(0)] = v
			}
		}
	}
	return true
}

// loadPlan copies rows r … r+n-1 of the part's plan into the worker's plan and checks them. usable
// reports whether the part's kernel can compute all of them.
func (w *worker) loadPlan(part *kernel.Part, s *stream, r, n int) (usable, ok bool) {
	w.resizePlan(n)
	loaded := &w.plan
	loaded.Mode = part.Rule.Mode
	loaded.Sources = part.Src.Shape[0]
	w.allPlain = true
	if part.Valid == nil {
		setAll(loaded.Valid, validOnes)
	} else {
		for i := range n {
			loaded.Valid[i] = part.Valid.Data[part.Valid.Base+(r+i)*part.Valid.Step(0)]
		}
	}
	if part.Kind == nil {
		setAll(loaded.Kind, copyKinds)
		clear(loaded.Weight)
		for i := range n {
			loaded.Left[i], loaded.Right[i] = int32(r+i), int32(r+i)
		}
		return true, true
	}
	usable = true
	kind, left, right, weight := part.Kind, part.Left, part.Right, part.Weight
	kindStep := kind.Step(0)
	leftStep := 4 * left.Step(0)
	rightStep := 4 * right.Step(0)
	weightStep := 8 * weight.Step(0)
	kindOffset := kind.Base + r*kindStep
	leftOffset := 4*left.Base + r*leftStep
	rightOffset := 4*right.Base + r*rightStep
	weightOffset := 8*weight.Base + r*weightStep
	sources := uint32(loaded.Sources)
	for i := range n {
		rowKind := kernel.Kind(kind.Data[kindOffset])
		leftRow := int32(le.Uint32(left.Data[leftOffset:]))
		rightRow := int32(le.Uint32(right.Data[rightOffset:]))
		rowWeight := math.Float64frombits(le.Uint64(weight.Data[weightOffset:]))
		kindOffset += kindStep
		leftOffset += leftStep
		rightOffset += rightStep
		weightOffset += weightStep
		switch rowKind {
		case kernel.Zero:
			w.allPlain = false
			leftRow, rightRow, rowWeight = 0, 0, 0
		case kernel.Copy:
			if uint32(leftRow) >= sources {
				return false, false
			}
			rightRow, rowWeight = leftRow, 0
		case kernel.Blend:
			if uint32(leftRow) >= sources || uint32(rightRow) >= sources {
				return false, false
			}
			if s.copiesBytes {
				usable = false
			}
		case kernel.Window:
			if leftRow < 0 || leftRow >= rightRow || uint32(rightRow) > sources {
				return false, false
			}
			usable = false
		default:
			return false, false
		}
		loaded.Kind[i], loaded.Weight[i] = rowKind, rowWeight
		loaded.Left[i], loaded.Right[i] = leftRow, rightRow
	}
	return usable, true
}
