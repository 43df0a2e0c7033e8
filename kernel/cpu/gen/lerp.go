package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kind is an element type whose computing type is float32.
type kind struct {
	name string
	size int
}

var (
	f32  = kind{"F32", 4}
	f16  = kind{"F16", 2}
	bf16 = kind{"B16", 2}
	u8   = kind{"U8", 1}
)

// epilogue states what a kernel does before the rounding.
type epilogue int

const (
	plain    epilogue = iota
	norm              // ((x - a)·scale)/b - off, clipped
	unitNorm          // x/255, then norm
)

// suffix is the end of the name of kernels with an epilogue.
var suffix = map[epilogue]string{norm: "Norm", unitNorm: "UnitNorm"}

// Offsets of the fields of rowArgs.
const (
	offDst = 8 * iota
	offSrc
	offDstStep
	offSrcStep
	offLeft
	offRight
	offWeight
	offRows
	offCols
	offA
	offB
	offScale // four float32: scale, off, lo, hi
	offLo
	offLimits // largest magnitude of 16-bit results: 8 lanes, 16 bytes
	_
	offAhead
	offValid
)

// Distances of prefetches in bytes, and the number of columns from which every line is prefetched.
const (
	sourceAhead = 16384
	resultAhead = 4096
	longCols    = 128
)

// rows generates one kernel that computes rows.
type rows struct {
	src, dst         kind
	epi              epilogue
	args             reg.Register
	row, cols, i, t  reg.GPVirtual
	out, p0, p1      reg.GPVirtual
	a, b             reg.GPVirtual
	w                reg.VecVirtual
	scale, off       reg.VecVirtual
	lo, hi, zero     reg.VecVirtual
	bias, one, quiet reg.VecVirtual
	magnitude, most  reg.VecVirtual
	most2            reg.VecVirtual
	by255            reg.VecVirtual
	// stores bypass the caches; rows must start and end at multiples of 32 bytes
	stream      bool
	q0, q1      reg.GPVirtual
	left, right reg.GPVirtual // nil = loaded from the arguments for each row
	base, step0 reg.GPVirtual
}

// memOperand returns the operand at base + disp.
func memOperand(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// indexedOperand returns the operand at base + index·scale + disp.
func indexedOperand(base, index reg.Register, scale, disp int) Mem {
	return Mem{Base: base, Index: index, Scale: uint8(scale), Disp: disp}
}

// writeLerp writes a kernel that blends rows. Weight 0 copies the left row.
func writeLerp(src, dst kind, epi epilogue, stream bool) {
	name := "lerp" + src.name + dst.name + suffix[epi]
	if stream {
		name += "Stream"
	}
	TEXT(name, NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s blends rows of %s into %s.", name, src.name, dst.name))
	if stream {
		Comment("Stores bypass the caches, and later rows are prefetched.")
	}
	k := &rows{src: src, dst: dst, epi: epi, stream: stream}
	k.args = Load(Param("a"), GP64())
	k.row, k.cols, k.i, k.t = GP64(), GP64(), GP64(), GP64()
	k.out, k.p0, k.p1 = GP64(), GP64(), GP64()
	k.w = YMM()
	MOVQ(memOperand(k.args, offCols), k.cols)
	MOVQ(memOperand(k.args, offDst), k.out)
	XORQ(k.row, k.row)
	k.loadConstants()
	weight := k.t
	if epi == plain && !stream {
		// There are enough registers for everything that a row needs.
		k.left = loadField(k.args, offLeft)
		k.right = loadField(k.args, offRight)
		k.base = loadField(k.args, offSrc)
		k.step0 = loadField(k.args, offSrcStep)
		weight = loadField(k.args, offWeight)
	}

	Label("row")
	CMPQ(k.row, memOperand(k.args, offRows))
	JGE(LabelRef("end"))
	k.rowAddress(offLeft, k.p0)
	k.prefetchLines()
	if k.left == nil {
		MOVQ(memOperand(k.args, offWeight), weight)
	}
	// Round the weight to float32. If it is 0, only the left row is read. The addition shifts the
	// sign out, so that -0 counts as 0.
	VXORPS(k.w.AsX(), k.w.AsX(), k.w.AsX())
	VCVTSD2SS(indexedOperand(weight, k.row, 8, 0), k.w.AsX(), k.w.AsX())
	VMOVD(k.w.AsX(), k.t.As32())
	ADDL(k.t.As32(), k.t.As32())
	JZ(LabelRef("left"))
	k.rowAddress(offRight, k.p1)
	VBROADCASTSS(k.w.AsX(), k.w)
	if stream {
		MOVQ(memOperand(k.args, offAhead), k.t)
		TESTQ(k.t, k.t)
		JZ(LabelRef("near"))
		k.prefetchAddresses()
		k.writeColumns("far", true)
		k.q0, k.q1 = nil, nil
		Label("near")
	}
	k.writeColumns("blend", true)
	Label("left")
	k.writeColumns("left", false)
	Label("next")
	ADDQ(memOperand(k.args, offDstStep), k.out)
	INCQ(k.row)
	JMP(LabelRef("row"))
	Label("end")
	if dst == f16 || dst == bf16 {
		// Combine the largest magnitudes of all lanes into eight.
		if k.blends16() {
			VPMAXUW(k.most2.AsX(), k.most.AsX(), k.most.AsX())
			VEXTRACTI128(U8(1), k.most2, k.most2.AsX())
			VPMAXUW(k.most2.AsX(), k.most.AsX(), k.most.AsX())
		}
		VMOVDQU(k.most.AsX(), memOperand(k.args, offLimits))
	}
	if stream {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}

// prefetchAddresses computes the source addresses of the row that is k.t rows ahead, or of the last
// row near the end.
func (k *rows) prefetchAddresses() {
	index, last := GP64(), GP64()
	k.q0, k.q1 = GP64(), GP64()
	LEAQ(indexedOperand(k.row, k.t, 1, 0), index)
	MOVQ(memOperand(k.args, offRows), last)
	DECQ(last)
	CMPQ(index, last)
	CMOVQGT(last, index)
	for i, q := range []reg.GPVirtual{k.q0, k.q1} {
		MOVQ(memOperand(k.args, offLeft+8*i), k.t)
		MOVLQSX(indexedOperand(k.t, index, 4, 0), q)
		IMULQ(memOperand(k.args, offSrcStep), q)
		ADDQ(memOperand(k.args, offSrc), q)
	}
}

// prefetchLines prefetches one line of the source and one of the result, which are used some rows
// later. The processor's own prefetcher stops at page borders and needs one hint per row. Addresses
// beyond the memory do not fault.
func (k *rows) prefetchLines() {
	PREFETCHT1(memOperand(k.p0, sourceAhead))
	PREFETCHT1(memOperand(k.out, resultAhead))
}

// rowAddress loads the address of a source row into p. field is the argument with the row's index.
func (k *rows) rowAddress(field int, p reg.GPVirtual) {
	index := k.t
	step := Op(memOperand(k.args, offSrcStep))
	base := Op(memOperand(k.args, offSrc))
	switch {
	case k.left == nil:
		MOVQ(memOperand(k.args, field), k.t)
	case field == offLeft:
		index, step, base = k.left, k.step0, k.base
	default:
		index, step, base = k.right, k.step0, k.base
	}
	MOVLQSX(indexedOperand(index, k.row, 4, 0), p)
	IMULQ(step, p)
	ADDQ(base, p)
}

// broadcastBits returns a register with the bits in all lanes of 32 bits.
func (k *rows) broadcastBits(bits uint32) reg.VecVirtual {
	y := YMM()
	MOVL(U32(bits), k.t.As32())
	VMOVD(k.t.As32(), y.AsX())
	VPBROADCASTD(y.AsX(), y)
	return y
}

// loadConstants loads the values that are the same for all rows.
func (k *rows) loadConstants() {
	if k.epi != plain {
		k.a, k.b = loadField(k.args, offA), loadField(k.args, offB)
		k.scale, k.off, k.lo, k.hi, k.zero = YMM(), YMM(), YMM(), YMM(), YMM()
		for i, y := range []reg.VecVirtual{k.scale, k.off, k.lo, k.hi} {
			VBROADCASTSS(memOperand(k.args, offScale+4*i), y)
		}
		VXORPS(k.zero, k.zero, k.zero)
	}
	if k.epi == unitNorm {
		k.by255 = k.broadcastBits(0x437f0000) // 255
	}
	switch k.dst {
	case bf16: // constants of roundBFloat16
		k.bias = k.broadcastBits(0x7fff)
		k.one = k.broadcastBits(1)
		k.quiet = k.broadcastBits(0x7fc0)
		fallthrough
	case f16:
		k.magnitude = k.broadcastBits(0x7fff7fff) // clears signs
		k.most = YMM()
		VPXOR(k.most, k.most, k.most)
	}
	if k.blends16() {
		k.zero, k.most2 = YMM(), YMM()
		VPXOR(k.zero, k.zero, k.zero)
		VPXOR(k.most2, k.most2, k.most2)
	}
}

// writeColumns writes the loops over one row, whose labels start with name. They handle 32 and then
// eight columns at a time. The last eight overlap the previous ones, so that nothing beyond the row
// is touched. Rows of less than eight columns handle four, or one at a time.
func (k *rows) writeColumns(name string, blend bool) {
	l := func(s string) string { return name + s }
	// steps handles n columns at a time while that many are left. Then it jumps to the label then.
	steps := func(label, then string, n int, body func()) {
		Label(l(label))
		LEAQ(memOperand(k.i, n), k.t)
		CMPQ(k.t, k.cols)
		JG(LabelRef(l(then)))
		body()
		MOVQ(k.t, k.i)
		JMP(LabelRef(l(label)))
	}
	// prefetchAhead prefetches the lines of the next 32 columns. It uses the second-level cache,
	// because prefetches into the first level share its few buffers with the loads.
	prefetchAhead := func(p reg.Register, size, ahead int) {
		for line := 0; line < 32*size; line += 64 {
			PREFETCHT1(indexedOperand(p, k.i, size, line+ahead))
		}
	}
	XORQ(k.i, k.i)
	CMPQ(k.cols, U8(8))
	JL(LabelRef(l("Small")))
	if blend && k.q0 == nil && k.epi == plain {
		// In long rows, every line of the source and of the result is prefetched.
		CMPQ(k.cols, U32(longCols))
		JL(LabelRef(l("Four")))
		steps("Long", "One", 32, func() {
			prefetchAhead(k.p0, k.src.size, sourceAhead)
			if !k.stream {
				prefetchAhead(k.out, k.dst.size, resultAhead)
			}
			k.step32(blend)
		})
	}
	steps("Four", "One", 32, func() {
		for line := 0; k.q0 != nil && line < 32*k.src.size; line += 64 {
			PREFETCHT1(indexedOperand(k.q0, k.i, k.src.size, line))
			PREFETCHT1(indexedOperand(k.q1, k.i, k.src.size, line))
		}
		k.step32(blend)
	})
	steps("One", "Rest", 8, func() { k.stepColumns(8, 0, blend) })
	Label(l("Rest"))
	CMPQ(k.i, k.cols)
	JE(LabelRef("next"))
	LEAQ(memOperand(k.cols, -8), k.i)
	k.stepColumns(8, 0, blend)
	JMP(LabelRef("next"))
	Label(l("Small"))
	CMPQ(k.cols, U8(4))
	JL(LabelRef(l("Tiny")))
	k.stepColumns(4, 0, blend)
	LEAQ(memOperand(k.cols, -4), k.i)
	k.stepColumns(4, 0, blend)
	JMP(LabelRef("next"))
	Label(l("Tiny"))
	CMPQ(k.i, k.cols)
	JGE(LabelRef("next"))
	k.stepColumns(1, 0, blend)
	INCQ(k.i)
	JMP(LabelRef(l("Tiny")))
}

// step32 handles 32 columns.
func (k *rows) step32(blend bool) {
	if blend && k.blends16() {
		k.stepBFloat16(0)
		k.stepBFloat16(16)
		return
	}
	for j := range 4 {
		k.stepColumns(8, 8*j, blend)
	}
}

// blends16 reports whether 16 columns are handled together, by stepBFloat16.
func (k *rows) blends16() bool { return k.src == bf16 && k.dst == bf16 && k.epi == plain }

// stepBFloat16 blends 16 columns of bfloat16, which are the high halves of float32. Interleaving
// them with zeros gives two registers of eight float32; packing the results restores the order.
func (k *rows) stepBFloat16(first int) {
	m := func(p reg.Register) Mem { return indexedOperand(p, k.i, 2, 2*first) }
	left, right := YMM(), YMM()
	VMOVDQU(m(k.p0), left)
	VMOVDQU(m(k.p1), right)
	blend := func(v0, d reg.VecVirtual) {
		VSUBPS(v0, d, d)
		VFMADD213PS(v0, k.w, d)
		k.roundBFloat16(8, d, v0)
	}
	v, d := YMM(), YMM()
	VPUNPCKLWD(left, k.zero, v)
	VPUNPCKLWD(right, k.zero, d)
	VPUNPCKHWD(left, k.zero, left)
	VPUNPCKHWD(right, k.zero, right)
	blend(v, d)
	blend(left, right)
	VPACKUSDW(right, d, d)
	VPAND(k.magnitude, d, v)
	VPMAXUW(v, k.most2, k.most2)
	if k.stream {
		VMOVNTDQ(d, m(k.out))
	} else {
		VMOVDQU(d, m(k.out))
	}
}

// roundBFloat16 rounds n float32 in y to bfloat16, in the low halves: it adds 0x7fff and the lowest
// bit that is kept, and shifts. u is scratch. It tests for NaN first, because rounding would turn
// some NaNs into infinity.
func (k *rows) roundBFloat16(n int, y, u reg.VecVirtual) {
	r := registerPart(y, n)
	nan := YMM()
	VCMPPS(U8(3), r, r, registerPart(nan, n))
	VPSRLD(U8(16), r, registerPart(u, n))
	VPAND(registerPart(k.one, n), registerPart(u, n), registerPart(u, n))
	VPADDD(registerPart(k.bias, n), registerPart(u, n), registerPart(u, n))
	VPADDD(registerPart(u, n), r, r)
	VPSRLD(U8(16), r, r)
	VBLENDVPS(registerPart(nan, n), registerPart(k.quiet, n), r, r)
}

// registerPart returns the part of a register that n float32 need.
func registerPart(v reg.VecVirtual, n int) reg.Register {
	if n == 8 {
		return v
	}
	return v.AsX()
}

// stepColumns handles n columns from column i+first on.
func (k *rows) stepColumns(n, first int, blend bool) {
	if !blend && k.src == k.dst && k.epi == plain {
		k.copyBits(n, first)
		return
	}
	v := k.loadFloats(n, k.p0, first)
	if blend {
		d := k.loadFloats(n, k.p1, first)
		VSUBPS(registerPart(v, n), registerPart(d, n), registerPart(d, n))
		VFMADD213PS(registerPart(v, n), registerPart(k.w, n), registerPart(d, n))
		v = d
	}
	k.writeEpilogue(n, v, first)
	k.storeColumns(n, v, first)
}
