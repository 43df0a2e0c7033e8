package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// applyPart is Part of src/apply.cuh.
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

// maxParts is how many parts one launch takes.
const maxParts = 30

// applyParams is Apply of src/apply.cuh.
type applyParams struct {
	counts, table uintptr
	work          int64
	parts, plan   int32
	s             [maxParts]applyPart
}

// applyThreads is the block of both kernels.
const applyThreads = 256

// prepareApply makes rows of several tensors by plans that are there, or casts and normalises them, in one launch; in two where some parts need the
// general kernel and some do not.
func (d *Device) prepareApply(op *kernel.ApplyOp) (*Launch, error) {
	l := &Launch{op: "apply", on: d.on}
	a := applier{l: l, chip: d.on.sm()}
	tensors := op.Tensors()
	l.tensors = len(tensors)
	number := map[*kernel.Tensor]int{}
	for i, t := range tensors {
		number[t] = i
	}
	counts := -1
	if op.Counts != nil {
		counts = number[op.Counts]
	}
	var t table
	for i := range op.Parts {
		p := &op.Parts[i]
		if p.Out.Len() == 0 {
			continue
		}
		if p.Out.Shape[0] > math.MaxInt32/2 || p.Out.Shape[1] > math.MaxInt32/2 {
			return nil, tooLarge("apply", "elements of an axis", max(p.Out.Shape[0], p.Out.Shape[1]))
		}
		if err := hostForms("apply", i, &p.Rule); err != nil {
			return nil, err
		}
		a.part(p, &t, number)
	}
	addr, err := l.table(t.b)
	if err != nil {
		return nil, err
	}
	for _, general := range []bool{false, true} {
		a.calls(general, addr, counts)
	}
	l.adjust = join(l.adjust, alignment("apply", tensors))
	if len(a.tight) > 0 {
		l.adjust = join(l.adjust, a.loosen)
	}
	return l.prepared()
}

// applier makes the calls of an ApplyOp.
type applier struct {
	l     *Launch
	chip  chip
	parts []preparedPart
	tight []tightPart
}

// preparedPart is a part before it has a place in a call.
type preparedPart struct {
	applyPart
	general bool
	tensors [8]int // in the order of applyPart's addresses; -1: none
	row     int    // bytes of a row that is moved
}

// tightPart is a part whose vectors ask something of addresses.
type tightPart struct {
	p        *applyParams
	at       int
	call     int
	src, out need
	narrow   applyPart
}

func (a *applier) part(p *kernel.Part, t *table, number map[*kernel.Tensor]int) {
	var x preparedPart
	for i, tensor := range []*kernel.Tensor{&p.Src, &p.Out, p.Kind, p.Left, p.Right, p.Weight, p.Valid, samplesOf(&p.Epilogue)} {
		x.tensors[i] = -1
		if tensor != nil {
			x.tensors[i] = number[tensor]
		}
	}
	from, to, cols := p.Src.DType, p.Out.DType, p.Out.Shape[1]
	x.rows, x.sources, x.columns = int32(p.Out.Shape[0]), int32(min(p.Src.Shape[0], math.MaxInt32)), int32(cols)
	x.srcRow, x.outRow = bytesStep(&p.Src, 0), bytesStep(&p.Out, 0)
	x.dtype, x.outType, x.mode = uint8(from), uint8(to), uint8(p.Rule.Mode)
	dense := (p.Src.Step(1) == 1 || cols <= 1) && (p.Out.Step(1) == 1 || cols <= 1) && small(x.srcRow) && small(x.outRow)
	_, mapped := fast(&p.Rule, &p.Epilogue, from, to)
	// Rows are moved where nothing is computed: without a plan, or by one that only takes samples.
	moved := from == to && !rare(&p.Epilogue) && (p.Kind == nil || p.Rule.Mode == kernel.Nearest || p.Rule.Mode == kernel.Previous || p.Rule.Mode == kernel.Next)
	x.extra = -1
	x.general = !dense || !moved && !mapped
	if x.general || p.Kind != nil || rare(&p.Epilogue) {
		x.extra = a.extra(p, t)
	}
	if x.general {
		a.parts = append(a.parts, x)
		return
	}
	x.vector = 1
	if moved {
		x.moved = 1
		x.row = cols * from.Size()
	} else if cols%4 == 0 && x.srcRow%int64(4*from.Size()) == 0 && x.outRow%int64(4*to.Size()) == 0 {
		x.vector = 4
	}
	if moved {
		for _, w := range []int{16, 4} {
			if x.row%w == 0 && x.srcRow%int64(w) == 0 && x.outRow%int64(w) == 0 {
				x.vector = uint8(w)
				break
			}
		}
	}
	a.parts = append(a.parts, x)
}

func samplesOf(e *kernel.Epilogue) *kernel.Tensor {
	if e.Augment == nil {
		return nil
	}
	return e.Augment.Samples
}

// extra is the part's Extra.
func (a *applier) extra(p *kernel.Part, t *table) int32 {
	at := t.extra(&p.Rule, &p.Epilogue, int(bytesStep(&p.Src, 1)))
	x := (*fuseExtra)(unsafe.Pointer(&t.b[at]))
	x.outColumn = bytesStep(&p.Out, 1)
	if s := samplesOf(&p.Epilogue); s != nil && s.Len() > 0 {
		x.per = int32(p.Out.Shape[0] / s.Len())
	}
	for tensor, to := range map[*kernel.Tensor]*int64{p.Kind: &x.kindRow, p.Left: &x.leftRow, p.Right: &x.rightRow, p.Weight: &x.weightRow, p.Valid: &x.validRow} {
		if tensor != nil {
			*to = bytesStep(tensor, 0)
		}
	}
	return at
}

// size chooses the tiles of a part: a thread has a vector of columns and a few rows.
func (x *applyPart) size(c chip, general bool, row int) int64 {
	if general {
		x.tile, x.chunks = min(x.rows, 32), 1
		for x.tile > 1 && int64(x.columns)*int64(x.tile) > 1<<16 {
			x.tile /= 2
		}
		return ceilDiv(int64(x.rows), int64(x.tile))
	}
	x.vectors = x.columns / int32(x.vector)
	if x.moved != 0 {
		x.vectors = int32(row / int(x.vector))
	}
	x.chunk = min(x.vectors, applyThreads)
	x.chunks = int32(ceilDiv(int64(x.vectors), int64(x.chunk)))
	x.tile = min(x.rows, max(2*unroll*(applyThreads/x.chunk), 8))
	return ceilDiv(int64(x.rows), int64(x.tile)) * int64(x.chunks)
}

// calls adds the launches of the fast or of the general parts.
func (a *applier) calls(general bool, table uintptr, counts int) {
	var of []*preparedPart
	for i := range a.parts {
		if a.parts[i].general == general {
			of = append(of, &a.parts[i])
		}
	}
	for from := 0; from < len(of); from += maxParts {
		a.call(of[from:min(from+maxParts, len(of))], general, table, counts)
	}
}

func (a *applier) call(of []*preparedPart, general bool, table uintptr, counts int) {
	p := &applyParams{table: table, parts: int32(len(of))}
	n := len(a.l.calls)
	k := call{kernel: "apply", block: applyThreads, early: true}
	bytes := rowBytes
	if general {
		k.kernel, bytes = "apply_any", wideRowBytes
	}
	for i, x := range of {
		narrow := x.applyPart
		x.work = p.work
		p.work += x.size(a.chip, general, x.row)
		p.s[i] = x.applyPart
		k.shared = max(k.shared, uint32(bytes*int(x.tile)))
		at := unsafe.Offsetof(p.s) + uintptr(i)*unsafe.Sizeof(p.s[0])
		for j, tensor := range x.tensors {
			if tensor >= 0 {
				a.l.places = append(a.l.places, place{call: n, at: int(at) + 8*j, tensor: tensor})
			}
		}
		if !general && x.vector > 1 {
			in, out := int(x.vector), int(x.vector)
			if x.moved == 0 {
				in, out = in*robocache.DType(x.dtype).Size(), out*robocache.DType(x.outType).Size()
			}
			a.tight = append(a.tight, tightPart{p: p, at: i, call: n, src: need{x.tensors[0], uintptr(in)}, out: need{x.tensors[1], uintptr(out)}, narrow: narrow})
		}
	}
	if counts >= 0 {
		a.l.places = append(a.l.places, place{call: n, at: int(unsafe.Offsetof(p.counts)), tensor: counts})
	}
	k.params, k.grid = paramsOf(p), uint32(min(p.work, 1<<30))
	k.args = func() string { return fmt.Sprintf("parts %d, blocks %d", p.parts, p.work) }
	a.l.calls = append(a.l.calls, k)
}

// loosen makes of parts whose addresses do not allow vectors such of single columns, and back.
func (a *applier) loosen(calls []call, addrs []uintptr) error {
	changed := false
	for i := range a.tight {
		t := &a.tight[i]
		x := &t.p.s[t.at]
		v := uint8(1)
		if addrs[t.src.tensor]%t.src.bytes == 0 && addrs[t.out.tensor]%t.out.bytes == 0 {
			v = t.narrow.vector
		}
		if x.vector != v {
			row := int(x.vectors) * int(x.vector)
			x.vector = v
			x.size(a.chip, false, row)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	for i := range calls {
		if calls[i].kernel != "apply" {
			continue
		}
		p := (*applyParams)(unsafe.Pointer(unsafe.SliceData(calls[i].params)))
		p.work, calls[i].shared = 0, 0
		for j := range p.s[:p.parts] {
			x := &p.s[j]
			x.work = p.work
			p.work += ceilDiv(int64(x.rows), int64(x.tile)) * int64(x.chunks)
			calls[i].shared = max(calls[i].shared, uint32(rowBytes*int(x.tile)))
		}
		calls[i].grid = uint32(min(p.work, 1<<30))
	}
	return nil
}
