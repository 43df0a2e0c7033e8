package cuda

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// applyPart mirrors Part of src/apply.cuh, which documents the fields.
type applyPart struct {
	src, out, kind, left, right, weight, valid, samples uintptr
	work                                                int64
	srcRow, outRow                                      int64
	rows, sources, columns, extra                       int32
	tile, vectors, chunk, chunks                        int32
	dtype, outType, mode, vector                        uint8
	moved                                               uint8
	_                                                   [3]uint8
}

// maxParts is the maximal number of parts in one launch.
const maxParts = 30

// applyParams mirrors Apply of src/apply.cuh, which documents the fields.
type applyParams struct {
	counts, table uintptr
	work          int64
	parts         int32
	_             int32 // used by the kernel only
	s             [maxParts]applyPart
}

// applyThreads is the block size of both kernels.
const applyThreads = 256

// prepareApply prepares rows of several tensors that are computed by existing plans, or cast and
// normalized. It needs one launch, or two if some parts need the general kernel and others do not.
func (d *Device) prepareApply(op *kernel.ApplyOp) (*Launch, error) {
	l := newLaunch(d.launcher, "apply", op)
	var parts [2][]preparedPart // fast, general
	var t paramTable
	for i := range op.Parts {
		p := &op.Parts[i]
		if p.Out.Len() == 0 {
			continue
		}
		if p.Out.Shape[0] > math.MaxInt32/2 || p.Out.Shape[1] > math.MaxInt32/2 {
			return nil, tooLargeError(
				"apply",
				"elements of an axis",
				max(p.Out.Shape[0], p.Out.Shape[1]),
			)
		}
		if err := checkForms("apply", i, &p.Rule); err != nil {
			return nil, err
		}
		x, general := preparePart(p, &t)
		parts[general] = append(parts[general], x)
	}
	addr, err := l.uploadTable(t.b)
	if err != nil {
		return nil, err
	}
	for general, all := range parts {
		for some := range slices.Chunk(all, maxParts) {
			addApply(l, op, some, general == 1, addr)
		}
	}
	return l, nil
}

// preparedPart is a part that is not yet in the parameters of a call.
type preparedPart struct {
	applyPart
	of     *kernel.Part
	widest uint8 // vector width if the addresses allow it
}

// preparePart describes a part. general is 1 if the part needs the general kernel, else 0.
func preparePart(p *kernel.Part, t *paramTable) (x preparedPart, general int) {
	from := p.Src.DType
	to := p.Out.DType
	cols := p.Out.Shape[1]
	x.of = p
	x.rows = int32(p.Out.Shape[0])
	x.sources = int32(min(p.Src.Shape[0], math.MaxInt32))
	x.columns = int32(cols)
	x.srcRow, x.outRow = bytesStep(&p.Src, 0), bytesStep(&p.Out, 0)
	x.dtype = uint8(from)
	x.outType = uint8(to)
	x.mode = uint8(p.Rule.Mode)
	dense := (p.Src.Step(1) == 1 || cols <= 1) && (p.Out.Step(1) == 1 || cols <= 1) &&
		fitsInt32(x.srcRow) && fitsInt32(x.outRow)
	_, mapped := fastKernels(&p.Rule, &p.Epilogue, from, to)
	// Rows are moved if nothing is computed: without a plan, or with a plan that only copies
	// samples.
	moved := from == to && !hasEpilogue(&p.Epilogue) &&
		(p.Kind == nil || p.Rule.Mode == kernel.Nearest || p.Rule.Mode == kernel.Previous ||
			p.Rule.Mode == kernel.Next)
	general = int(flag(!dense || !moved && !mapped))
	x.extra = -1
	x.widest = 1
	if general == 1 || p.Kind != nil || hasEpilogue(&p.Epilogue) {
		x.extra = appendPartExtra(p, t)
	}
	if general == 1 {
		return x, general
	}
	x.moved = flag(moved)
	if !moved {
		if cols%4 == 0 && x.srcRow%int64(4*from.Size()) == 0 && x.outRow%int64(4*to.Size()) == 0 {
			x.widest = 4
		}
		return x, general
	}
	for _, w := range []int{4, 16} {
		if cols*from.Size()%w == 0 && x.srcRow%int64(w) == 0 && x.outRow%int64(w) == 0 {
			x.widest = uint8(w)
		}
	}
	return x, general
}

// sampleTensor returns the tensor of sample numbers of the augmentation, or nil.
func sampleTensor(e *kernel.Epilogue) *kernel.Tensor {
	if e.Augment == nil {
		return nil
	}
	return e.Augment.Samples
}

// appendPartExtra appends the Extra of a part to the table and returns its offset.
func appendPartExtra(p *kernel.Part, t *paramTable) int32 {
	at := t.appendExtra(&p.Rule, &p.Epilogue, int(bytesStep(&p.Src, 1)))
	x := (*fuseExtra)(unsafe.Pointer(&t.b[at]))
	x.outColumn = bytesStep(&p.Out, 1)
	if s := sampleTensor(&p.Epilogue); s != nil && s.Len() > 0 {
		x.per = int32(p.Out.Shape[0] / s.Len())
	}
	for tensor, to := range map[*kernel.Tensor]*int64{
		p.Kind:   &x.kindRow,
		p.Left:   &x.leftRow,
		p.Right:  &x.rightRow,
		p.Weight: &x.weightRow,
		p.Valid:  &x.validRow,
	} {
		if tensor != nil {
			*to = bytesStep(tensor, 0)
		}
	}
	return at
}

// chooseTiles chooses the tiles of a part, for a vector of columns and a few rows per thread. It
// returns the number of blocks.
func (x *applyPart) chooseTiles(general bool, vector uint8) int64 {
	if general {
		x.tile = min(x.rows, 32)
		x.chunks = 1
		for x.tile > 1 && int64(x.columns)*int64(x.tile) > 1<<16 {
			x.tile /= 2
		}
	} else {
		x.vector = vector
		x.vectors = x.columns / int32(vector)
		if x.moved != 0 {
			x.vectors = int32(int(x.columns) * robocache.DType(x.dtype).Size() / int(vector))
		}
		x.chunk = min(x.vectors, applyThreads)
		x.chunks = int32(ceilDiv(int64(x.vectors), int64(x.chunk)))
		x.tile = min(x.rows, max(2*unroll*(applyThreads/x.chunk), 8))
	}
	return ceilDiv(int64(x.rows), int64(x.tile)) * int64(x.chunks)
}

// alignments returns the alignments that vectors of a part need from its addresses.
func (x *preparedPart) alignments(l *Launch) [2]alignment {
	in, out := uintptr(x.widest), uintptr(x.widest)
	if x.moved == 0 {
		in, out = in*uintptr(x.of.Src.DType.Size()), out*uintptr(x.of.Out.DType.Size())
	}
	return [2]alignment{{l.number[&x.of.Src], in}, {l.number[&x.of.Out], out}}
}

// addApply adds the launch of the fast or of the general parts. In each run, parts whose addresses
// do not allow vectors are computed column by column.
func addApply(l *Launch, op *kernel.ApplyOp, parts []preparedPart, general bool, table uintptr) {
	p := &applyParams{table: table, parts: int32(len(parts))}
	k := call{
		kernel: "apply",
		block:  applyThreads,
		early:  true,
		params: paramsOf(p),
		args:   func() string { return fmt.Sprintf("parts %d, blocks %d", p.parts, p.work) },
	}
	bytes := rowBytes
	if general {
		k.kernel, bytes = "apply_any", wideRowBytes
	}
	n := l.addCall(k)
	l.bind(n, &p.counts, op.Counts)
	needs := make([][2]alignment, len(parts))
	for i := range parts {
		x := &p.s[i]
		of := parts[i].of
		*x = parts[i].applyPart
		needs[i] = parts[i].alignments(l)
		l.bind(n, &x.src, &of.Src)
		l.bind(n, &x.out, &of.Out)
		l.bind(n, &x.kind, of.Kind)
		l.bind(n, &x.left, of.Left)
		l.bind(n, &x.right, of.Right)
		l.bind(n, &x.weight, of.Weight)
		l.bind(n, &x.valid, of.Valid)
		l.bind(n, &x.samples, sampleTensor(&of.Epilogue))
	}
	l.adjust = append(l.adjust, func(addrs []uintptr) {
		k := &l.calls[n]
		p.work, k.shared = 0, 0
		for i := range needs {
			vector := parts[i].widest
			if !needs[i][0].isMet(addrs) || !needs[i][1].isMet(addrs) {
				vector = 1
			}
			x := &p.s[i]
			x.work = p.work
			p.work += x.chooseTiles(general, vector)
			k.shared = max(k.shared, uint32(bytes*int(x.tile)))
		}
		k.grid = uint32(min(p.work, 1<<30))
	})
}
