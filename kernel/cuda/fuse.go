package cuda

import (
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// prepareFuse prepares the resampling of any number of streams into neighboring columns, in one
// launch. With Validate or ErrorEdge, a run waits for a check of times before it writes anything.
func (d *Device) prepareFuse(op *kernel.FuseOp) (*Launch, error) {
	name := "fuse"
	if len(op.Series) == 1 {
		name = "resample"
	}
	f := fuseBuilder{
		on:    d.launcher,
		op:    op,
		l:     newLaunch(d.launcher, name, op),
		batch: op.Out.Shape[0],
		rows:  op.Out.Shape[1],
		cols:  op.Out.Shape[2],
	}
	if err := f.addCalls(); err != nil {
		return nil, err
	}
	return f.l, nil
}

// fuseBuilder builds the calls of a FuseOp.
type fuseBuilder struct {
	on                launcher
	op                *kernel.FuseOp
	l                 *Launch
	batch, rows, cols int
	table             paramTable
}

// columnCount returns D, the number of columns of a stream.
func columnCount(s *kernel.Series) int { return s.Values.Shape[len(s.Values.Shape)-1] }

// addCalls adds one launch for every 32 streams, after the check of values.
func (f *fuseBuilder) addCalls() error {
	checks := f.op.Validate
	for i := range f.op.Series {
		checks = checks || f.op.Series[i].Rule.Edge == kernel.ErrorEdge
	}
	isEmpty := f.rows == 0 || f.cols == 0 && f.op.Valid == nil
	if f.batch == 0 || isEmpty && !checks {
		return nil
	}
	if f.rows > math.MaxInt32/2 {
		return tooLargeError(f.l.op, "target rows", f.rows)
	}
	var groups []*fuseGroup
	col := 0
	for from := 0; from < len(f.op.Series); from += maxStreams {
		g := &fuseGroup{f: f, from: from, to: min(from+maxStreams, len(f.op.Series)), col: col}
		if err := g.describeGroup(); err != nil {
			return err
		}
		groups = append(groups, g)
		col += g.cols
	}
	addr, err := f.l.uploadTable(f.table.b)
	if err != nil {
		return err
	}
	if checks {
		f.l.before = f.checkValues
	}
	if f.rows == 0 { // only the check runs; nil calls would mean a closed Launch
		f.l.calls = []call{}
		return nil
	}
	for _, g := range groups {
		g.addGroupCalls(addr)
		if g.vector > 1 {
			f.l.adjust = append(f.l.adjust, g.chooseCall)
		}
	}
	return nil
}

// tooLargeError returns the error for n elements of an axis. what names them.
func tooLargeError(op, what string, n int) error {
	return robocache.ResourceLimit(op, nil, "too many %s", what).
		Expected("at most 2^30", fmt.Sprint(n))
}

// fuseGroup is up to 32 neighboring streams, which one launch computes.
type fuseGroup struct {
	f             *fuseBuilder
	from, to, col int
	cols          int
	kind          fuseKind
	vector        int // columns per thread in the fast kernels; else 1
	p             fuseParams
	wide, narrow  int       // numbers of the calls for vectors and for single columns
	grids         [2]uint32 // grids of these two calls
	alignments    []alignment
}

// alignment is the alignment that vectors need from an address.
type alignment struct {
	tensor int
	bytes  uintptr
}

// isMet reports whether the address of the tensor has the alignment.
func (n alignment) isMet(addrs []uintptr) bool { return addrs[n.tensor]%n.bytes == 0 }

// fuseKind selects the kernels for a group of streams.
type fuseKind uint8

const (
	fuseAny    fuseKind = iota // supports everything
	fuseMapped                 // supports an epilogue and casts between some types (fastKernels)
	fuseLean                   // requires equal types and no epilogue (fastKernels)
)

// describeGroup fills the parameters that do not depend on the kernel. It chooses the fastest of
// the kernels fuseLean, fuseMapped and the general one that supports every stream of the group.
func (g *fuseGroup) describeGroup() error {
	f := g.f
	op := g.f.op
	p := &g.p
	size := op.Out.DType.Size()
	p.batch = int64(f.batch)
	p.rows = int32(f.rows)
	p.streams = int32(g.to - g.from)
	p.first = int32(g.from)
	p.outEntry = bytesStep(&op.Out, 0)
	p.outRow = bytesStep(&op.Out, 1)
	p.outColumn = bytesStep(&op.Out, 2)
	p.outType = uint8(op.Out.DType)
	p.clock = uint8(op.Clock)
	p.epsilon = op.Epsilon
	p.timeType = uint8(op.Targets.DType)
	p.targetsEntry, p.targetsRow = timeSteps(&op.Targets)
	if v := op.Valid; v != nil {
		p.validEntry, p.validRow, p.validStream = bytesStep(v, 0), bytesStep(v, 1), bytesStep(v, 2)
	}
	// lean and mapped report whether all streams so far suit fuseLean and fuseMapped.
	lean := op.Counts == nil
	mapped := true
	isDenseOut := (op.Out.Step(2) == 1 || f.cols <= 1) && fitsInt32(p.outRow)
	for i := g.from; i < g.to; i++ {
		s := &op.Series[i]
		if err := g.describeStream(i); err != nil {
			return err
		}
		columns := columnCount(s)
		isDense := s.Values.Step(len(s.Values.Shape)-1) == 1 || columns <= 1
		fits := isDenseOut && isDense && fitsInt32(p.s[i-g.from].row)
		canLean, canMapped := fastKernels(&s.Rule, &s.Epilogue, s.Values.DType, op.Out.DType)
		lean = lean && canLean && fits
		mapped = mapped && canMapped && fits
		g.cols += columns
	}
	switch {
	case lean && g.cols > 0:
		g.kind = fuseLean
	case mapped && g.cols > 0:
		g.kind = fuseMapped
	}
	// Append the rare settings to the table, if the kernel reads them.
	for i := g.from; i < g.to; i++ {
		s := &op.Series[i]
		x := &p.s[i-g.from]
		x.extra = -1
		if g.kind == fuseAny || g.kind == fuseMapped && hasEpilogue(&s.Epilogue) {
			x.extra = f.table.appendExtra(
				&s.Rule,
				&s.Epilogue,
				int(bytesStep(&s.Values, len(s.Values.Shape)-1)),
			)
		}
	}
	g.vector = 1
	if g.kind != fuseAny {
		g.chooseVector(size)
	}
	return nil
}

// describeStream fills the parameters of stream i of the operation. Its columns follow those of the
// streams before it.
func (g *fuseGroup) describeStream(i int) error {
	f := g.f
	op := f.op
	s := &op.Series[i]
	p := &g.p
	x := &p.s[i-g.from]
	columns := columnCount(s)
	if columns > math.MaxInt32/2 {
		return tooLargeError(f.l.op, "channels", columns)
	}
	axis := len(s.Values.Shape) - 2
	x.columns = int32(columns)
	x.n = int32(min(s.Values.Shape[axis], math.MaxInt32))
	x.row = bytesStep(&s.Values, axis)
	x.entry = int64(s.Values.Shape[0]) // ragged: the number of rows
	if axis == 1 {
		x.entry = bytesStep(&s.Values, 0)
	}
	x.timesEntry, x.timesRow = timeSteps(&s.Times)
	switch s.Times.DType {
	case robocache.Float64:
		x.flags = streamTimesF64
	case robocache.Float32:
		x.flags = streamTimesF32
	}
	if s.Lengths != nil {
		p.ragged = 1
		x.flags |= streamLengths
		x.rowsStep = bytesStep(s.Lengths, 0)
	}
	if s.Offsets != nil {
		p.ragged = 1
		x.flags |= streamOffsets
		x.rowsStep = bytesStep(s.Offsets, 0)
	}
	isNanoseconds := op.Clock == kernel.Nanoseconds && s.Times.DType == robocache.Int64
	isLinear := s.Rule.Mode == kernel.Linear && s.Rule.Edge <= kernel.Mask
	if isLinear && isNanoseconds {
		x.flags |= streamBrief
	}
	x.maxGap = s.Rule.MaxGap
	x.mode = uint8(s.Rule.Mode)
	x.edge = uint8(s.Rule.Edge)
	x.dtype = uint8(s.Values.DType)
	x.out = int64(g.col+g.cols) * p.outColumn
	if s.Rule.Mode == kernel.Slerp && s.Rule.Continuous {
		return robocache.Unsupported(f.l.op, robocache.Where{"stream": i},
			"continuous signs are not made on a GPU").
			WithHint("kernel.ContinuousSigns before the copy, or the CPU")
	}
	return checkForms(f.l.op, i, &s.Rule)
}

// bytesStep returns a stride in bytes.
func bytesStep(t *kernel.Tensor, axis int) int64 {
	return int64(t.Step(axis)) * int64(t.DType.Size())
}

// timeSteps returns the strides of times [S] or [B, S], in bytes.
func timeSteps(t *kernel.Tensor) (entry, row int64) {
	axis := len(t.Shape) - 1
	if axis == 1 {
		entry = bytesStep(t, 0)
	}
	return entry, bytesStep(t, axis)
}

// fitsInt32 reports whether the fast kernels can compute offsets with this stride in 32 bits.
func fitsInt32(step int64) bool { return step > math.MinInt32/2 && step < math.MaxInt32/2 }

// chooseVector chooses how many neighboring columns, called a vector, a thread computes at once: 8,
// 4 or 1. A vector has at most 16 bytes, both of the values and of the result. The number of
// columns and all strides must be multiples of it. size is the number of bytes of a result element.
// The alignment of the addresses is checked in each run.
func (g *fuseGroup) chooseVector(size int) {
	p := &g.p
	widest := 4
	if g.kind == fuseLean && size == 2 {
		widest = 8
	}
	for e := widest; e >= 4; e /= 2 {
		out := int64(e * size) // bytes of a vector of the result
		ok := p.outRow%out == 0 && (g.f.batch == 1 || p.outEntry%out == 0)
		for i := g.from; i < g.to && ok; i++ {
			s := &g.f.op.Series[i]
			x := &p.s[i-g.from]
			in := int64(e * s.Values.DType.Size()) // bytes of a vector of the values
			ok = int(x.columns)%e == 0 && x.out%out == 0 && x.row%in == 0 &&
				(g.f.batch == 1 || s.Offsets != nil || x.entry%in == 0)
		}
		if ok {
			g.vector = e
			return
		}
	}
}

// addGroupCalls adds the group's calls to the Launch, with the kernels that are fastest for it.
// table is the device address of the paramTable.
func (g *fuseGroup) addGroupCalls(table uintptr) {
	p := g.p
	p.table = table
	if g.useDirect() {
		g.addDirectCalls(p)
		return
	}
	mapped := ""
	if g.kind == fuseMapped {
		mapped = "_mapped"
	}
	how := g.chooseWay(&p)
	switch {
	case g.kind == fuseAny:
		g.wide = g.addTiled(p, 1, "fuse_any", fuseTiles)
		return
	case how == fuseRows:
		g.wide = g.addTiled(p, 1, "fuse_small_rows"+mapped, how)
		return
	case how == fuseWhole:
		g.vector = 4
		g.wide = g.addTiled(p, 4, "fuse_4_staged", how)
	default:
		g.wide = g.addTiled(p, g.vector, fmt.Sprintf("fuse_%d%s", g.vector, mapped), how)
	}
	if g.vector > 1 {
		g.narrow = g.addTiled(p, 1, "fuse_1"+mapped, fuseTiles)
	}
	g.recordAlignments()
}

// recordAlignments records the alignments that the call for vectors needs.
func (g *fuseGroup) recordAlignments() {
	if g.vector == 1 {
		return
	}
	l := g.f.l
	g.grids = [2]uint32{l.calls[g.wide].grid, l.calls[g.narrow].grid}
	ask := func(t *kernel.Tensor) {
		g.alignments = append(
			g.alignments,
			alignment{l.number[t], uintptr(g.vector * t.DType.Size())},
		)
	}
	ask(&g.f.op.Out)
	for i := g.from; i < g.to; i++ {
		ask(&g.f.op.Series[i].Values)
	}
}

// addTiled adds one call of the kernel name, which takes fuseParams. vector is the number of
// columns per thread. It returns the number of the call.
func (g *fuseGroup) addTiled(params fuseParams, vector int, name string, how fuseWay) int {
	f := g.f
	p := &params
	vectors := 0
	for i := range int(p.streams) {
		p.s[i].vector = int32(vectors)
		vectors += int(p.s[i].columns) / vector
	}
	p.vectors = int32(vectors)
	k := call{kernel: name, params: paramsOf(p), early: true}
	k.block, k.grid, k.shared = g.chooseShape(p, vector, how)
	isSmall := int64(k.grid) <= 2*int64(f.on.chipInfo().processors)
	if how == fuseTiles && isSmall && p.hasLongStream() {
		// Blocks that start early occupy space that the last blocks of the previous launch need.
		// Measured on an H200, early and not early: 64×4096→1024×128 bf16 17.1 and 12.4 µs, 32×4096
		// f32 16.3 and 11.6 µs. For short streams, starting early is faster.
		k.early = false
	}
	k.args = func() string {
		return fmt.Sprintf(
			"B %d, T %d, streams %d, columns %d, tile %d",
			p.batch,
			p.rows,
			p.streams,
			g.cols,
			p.tile,
		)
	}
	n := f.l.addCall(k)
	g.bindAddresses(n, &p.fuseHead, func(i int) *streamHead { return &p.s[i].streamHead })
	for i := range int(p.streams) {
		f.l.bind(n, &p.s[i].samples, sampleTensor(&f.op.Series[g.from+i].Epilogue))
	}
	return n
}

// bindAddresses binds the addresses of the group to the parameters of call n. stream returns the
// parameters of stream i of the group.
func (g *fuseGroup) bindAddresses(n int, h *fuseHead, stream func(i int) *streamHead) {
	l, op := g.f.l, g.f.op
	l.bind(n, &h.targets, &op.Targets)
	l.bind(n, &h.out, &op.Out)
	l.bind(n, &h.valid, op.Valid)
	l.bind(n, &h.counts, op.Counts)
	for i := g.from; i < g.to; i++ {
		s := &op.Series[i]
		x := stream(i - g.from)
		l.bind(n, &x.values, &s.Values)
		l.bind(n, &x.times, &s.Times)
		l.bind(n, &x.rows, s.Lengths)
		l.bind(n, &x.rows, s.Offsets)
	}
}

// chooseCall enables the call for vectors if all addresses are aligned. Otherwise it enables the
// call for single columns. A call with grid 0 is disabled.
func (g *fuseGroup) chooseCall(addrs []uintptr) {
	calls := g.f.l.calls
	grids := g.grids
	for _, n := range g.alignments {
		if !n.isMet(addrs) {
			calls[g.wide].grid = 0
			calls[g.narrow].grid = grids[1]
			return
		}
	}
	calls[g.wide].grid = grids[0]
	calls[g.narrow].grid = 0
}

// checkForms rejects rotations in forms that no GPU kernel supports.
func checkForms(op string, stream int, rule *kernel.Rule) error {
	if rule.Mode != kernel.Slerp || rule.Rotations == nil {
		return nil
	}
	return robocache.Unsupported(op, robocache.Where{"stream": stream},
		"rotations in other forms than quaternions are not made on a GPU").
		WithHint("the CPU")
}
