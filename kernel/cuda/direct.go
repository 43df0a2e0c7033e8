package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// The structs mirror those of src/direct.cuh, which documents the fields. The order and the sizes
// must be equal (direct_test.go).

// directStream mirrors DirectStream of src/direct.cuh.
type directStream struct {
	streamHead
	entry, row, timesEntry, timesRow           int64
	maxGap, out, rowsStep                      int64
	n, vector, a, b, entries, plane            int32
	dtype, mode, edge, flags, norm, _, _, _, _ uint8
	_                                          [3]uint8
}

// divisor mirrors Divisor of src/direct.cuh.
type divisor struct{ m, shift uint32 }

// directParams mirrors Direct of src/direct.cuh, the parameters of a launch.
type directParams struct {
	fuseHead
	total, vectors, rows              uint32
	streams                           int32
	byVectors, byRows                 divisor
	targetsEntry, targetsRow          int64
	outEntry, outRow                  int64
	validEntry, validRow, validStream int64
	first                             int32
	outType, _, _, _                  uint8
	s                                 [directStreams]directStream
}

// directStreams is DIRECT_STREAMS of src/direct.cuh: the most streams of one launch.
const directStreams = 4

// directLimit is the number of vectors up to which the direct kernels are faster. Above it, the
// staged kernels are faster, because they plan a tile once for all its columns. For single columns
// the limit is two thirds of it. It is a variable so that tests can change it.
//
// Measured on an H200:
//
//	vectors of bytes    direct   staged
//	  470,000 of  8     6.1 µs   8.7 µs
//	  520,000 of 16     6.4 µs   8.4 µs
//	1,900,000 of  8    20.5 µs  13.4 µs
var directLimit int64 = 600_000

// directVectors is the number of vectors in a row of one stream up to which the direct kernels are
// faster at any size.
//
// Measured on an H200 with 16,384 entries of 100 samples and 50 targets:
//
//	vectors in a row    direct   staged
//	               1     16 µs    53 µs
//	               2     28 µs    55 µs
//	               4     52 µs    63 µs
//	               8     98 µs    97 µs
const directVectors = 4

// newDivisor returns the divisor d of numbers n below 2^31: n/d is n·m >> shift. With 2^(s-1) < d ≤
// 2^s and m = ⌈2^(31+s)/d⌉, n·m exceeds n·2^(31+s)/d by less than 2^(31+s)/d. The quotient is
// therefore exact.
func newDivisor(d uint32) divisor {
	s := uint32(bits.Len32(d - 1))
	return divisor{uint32((1<<(31+uint64(s)) + uint64(d) - 1) / uint64(d)), 31 + s}
}

// useDirect reports whether the direct kernels can compute the group's rows and are faster.
func (g *fuseGroup) useDirect() bool {
	f := g.f
	op := g.f.op
	isSimple := g.kind != fuseAny && op.Counts == nil && g.to-g.from <= directStreams
	isNanoseconds := op.Clock == kernel.Nanoseconds && op.Targets.DType == robocache.Int64
	if !isSimple || !isNanoseconds {
		return false
	}
	for i := g.from; i < g.to; i++ {
		s := &op.Series[i]
		d := s.Values.DType
		if d == robocache.Uint8 || d != op.Series[g.from].Values.DType {
			return false
		}
		if columnCount(s) == 0 || s.Times.DType != robocache.Int64 {
			return false
		}
		if s.Rule.Edge == kernel.Extrapolate {
			return false
		}
		if e := &s.Epilogue; e.Unit || e.Clip != nil {
			return false
		}
	}
	lines := int64(f.batch) * int64(f.rows)
	vectors := int64(g.cols / g.vector)
	limit := directLimit
	if g.vector == 1 {
		limit = limit / 3 * 2
	}
	if fuseChoice != "" {
		return fuseChoice == "direct" && lines*int64(g.cols) < math.MaxInt32
	}
	if lines*int64(g.cols) >= math.MaxInt32 {
		return false
	}
	isOneStream := g.to-g.from == 1 && g.vector > 1
	isNarrow := directLimit > 0 && isOneStream && vectors <= directVectors
	isSmall := lines <= limit && lines*vectors <= limit
	return isNarrow || isSmall
}

// addDirectCalls adds the group's calls to the Launch: one for vectors, and one for single columns
// if the addresses do not allow vectors.
func (g *fuseGroup) addDirectCalls(p fuseParams) {
	g.wide = g.addDirect(p, g.vector)
	if g.vector > 1 {
		g.narrow = g.addDirect(p, 1)
	}
	g.recordAlignments()
}

// addDirect adds the call for vectors of the given number of columns. It returns the number of the
// call.
func (g *fuseGroup) addDirect(params fuseParams, vector int) int {
	f := g.f
	p := &directParams{
		fuseHead:     params.fuseHead,
		vectors:      uint32(g.cols / vector),
		rows:         uint32(params.rows),
		streams:      params.streams,
		targetsEntry: params.targetsEntry,
		targetsRow:   params.targetsRow,
		outEntry:     params.outEntry,
		outRow:       params.outRow,
		validEntry:   params.validEntry,
		validRow:     params.validRow,
		validStream:  params.validStream,
		first:        params.first,
		outType:      params.outType,
	}
	p.total = uint32(params.batch) * p.rows * p.vectors
	p.byVectors, p.byRows = newDivisor(p.vectors), newDivisor(p.rows)
	at := int32(0)
	for i := range int(params.streams) {
		x := &params.s[i]
		p.s[i] = x.toDirect(f.table.b)
		p.s[i].vector = at
		at += x.columns / int32(vector)
	}
	block, early := directShape(p.total)
	k := call{
		kernel: g.directKernel(vector),
		grid:   uint32(ceilDiv(int64(p.total), int64(block))),
		block:  block,
		params: paramsOf(p),
		early:  early,
	}
	k.args = func() string {
		return fmt.Sprintf(
			"B %d, T %d, streams %d, columns %d",
			params.batch,
			p.rows,
			p.streams,
			g.cols,
		)
	}
	n := f.l.addCall(k)
	g.bindAddresses(n, &p.fuseHead, func(i int) *streamHead { return &p.s[i].streamHead })
	return n
}

// toDirect returns the stream for the direct kernels. extras holds the epilogues.
func (x *fuseStream) toDirect(extras []byte) directStream {
	out := directStream{
		entry:      x.entry,
		row:        x.row,
		timesEntry: x.timesEntry,
		timesRow:   x.timesRow,
		maxGap:     x.maxGap,
		out:        x.out,
		rowsStep:   x.rowsStep,
		n:          x.n,
		dtype:      x.dtype,
		mode:       x.mode,
		edge:       x.edge,
		flags:      x.flags,
	}
	if x.extra >= 0 {
		e := (*fuseExtra)(unsafe.Pointer(&extras[x.extra]))
		out.a, out.b = e.a, e.b
		out.entries, out.plane, out.norm = e.entries, e.plane, e.norm
	}
	return out
}

// directShape chooses the number of threads in a block, and whether a launch may start early.
// Measured on an H200 with graphs of 50 launches: a few small blocks can wait next to the running
// ones at no cost. More of them occupy space that the running launch needs. If not all blocks fit
// at once, the waiting ones are the next to run.
func directShape(total uint32) (block uint32, early bool) {
	if total > 1<<17 {
		return 256, true
	}
	if total > 40_000 {
		return 128, false
	}
	return 64, true
}

// directKernel returns the name of the kernel for vectors of the given number of columns.
func (g *fuseGroup) directKernel(vector int) string {
	name := map[robocache.DType]string{
		robocache.Float32:  "f32",
		robocache.BFloat16: "bf16",
		robocache.Float16:  "f16",
	}[g.f.op.Series[g.from].Values.DType]
	name = fmt.Sprintf("direct_%s_%d", name, vector)
	if g.to-g.from > 1 {
		name += "_many"
	}
	if g.kind == fuseMapped {
		name += "_scaled"
	}
	return name
}
