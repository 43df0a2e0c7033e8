package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kind is a type of elements that are computed in float32.
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

// epilogue says what a kernel does before the rounding.
type epilogue int

const (
	plain    epilogue = iota
	norm              // ((x - a)·scale)/b - off, clipped
	unitNorm          // x/255 first
)

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
	offLimits // greatest magnitude of 16-bit results, 8 lanes; 16 bytes
	_
	offAhead
	offValid
)

// How far ahead lines are asked for, in bytes, and from how many columns on all of them are.
const (
	sourceAhead = 16384
	resultAhead = 4096
	longCols    = 128
)

// rows is the generator of one kernel over rows.
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
	stream           bool // stores go round the caches: rows begin and end at multiples of 32 bytes
	q0, q1           reg.GPVirtual
	left, right      reg.GPVirtual // nil = they are read from the arguments a row
	base, step0      reg.GPVirtual
}

func mem(base reg.Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

func at(base, index reg.Register, scale, disp int) Mem {
	return Mem{Base: base, Index: index, Scale: uint8(scale), Disp: disp}
}

// lerp writes the kernel that blends rows: weight 0 takes the left row alone.
func lerp(src, dst kind, epi epilogue, stream bool) {
	name := "lerp" + src.name + dst.name + suffix[epi]
	if stream {
		name += "Stream"
	}
	TEXT(name, NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s blends rows of %s into %s.", name, src.name, dst.name))
	if stream {
		Comment("Stores go round the caches, and rows to come are asked for.")
	}
	k := &rows{src: src, dst: dst, epi: epi, stream: stream}
	k.args = Load(Param("a"), GP64())
	k.row, k.cols, k.i, k.t, k.out, k.p0, k.p1 = GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	k.w = YMM()
	MOVQ(mem(k.args, offCols), k.cols)
	MOVQ(mem(k.args, offDst), k.out)
	XORQ(k.row, k.row)
	k.constants()
	weight := k.t
	if epi == plain && !stream {
		// Registers are enough for all that a row needs.
		k.left, k.right, k.base, k.step0, weight = field(
			k.args,
			offLeft,
		), field(
			k.args,
			offRight,
		), field(
			k.args,
			offSrc,
		), field(
			k.args,
			offSrcStep,
		), field(
			k.args,
			offWeight,
		)
	}

	Label("row")
	CMPQ(k.row, mem(k.args, offRows))
	JGE(LabelRef("end"))
	k.source(offLeft, k.p0)
	k.fetch()
	if k.left == nil {
		MOVQ(mem(k.args, offWeight), weight)
	}
	VXORPS(k.w.AsX(), k.w.AsX(), k.w.AsX())
	VCVTSD2SS(at(weight, k.row, 8, 0), k.w.AsX(), k.w.AsX())
	VMOVD(k.w.AsX(), k.t.As32())
	ADDL(k.t.As32(), k.t.As32())
	JZ(LabelRef("left"))
	k.source(offRight, k.p1)
	VBROADCASTSS(k.w.AsX(), k.w)
	if stream {
		MOVQ(mem(k.args, offAhead), k.t)
		TESTQ(k.t, k.t)
		JZ(LabelRef("near"))
		k.ahead()
		k.columns("far", true)
		k.q0, k.q1 = nil, nil
		Label("near")
	}
	k.columns("blend", true)
	Label("left")
	k.columns("left", false)
	Label("next")
	ADDQ(mem(k.args, offDstStep), k.out)
	INCQ(k.row)
	JMP(LabelRef("row"))
	Label("end")
	if dst == f16 || dst == bf16 {
		if k.wide16() {
			VPMAXUW(k.most2.AsX(), k.most.AsX(), k.most.AsX())
			VEXTRACTI128(U8(1), k.most2, k.most2.AsX())
			VPMAXUW(k.most2.AsX(), k.most.AsX(), k.most.AsX())
		}
		VMOVDQU(k.most.AsX(), mem(k.args, offLimits))
	}
	if stream {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}

// ahead finds the rows that the row so many after this one is made of; near the end, the last one.
func (k *rows) ahead() {
	index, last := GP64(), GP64()
	k.q0, k.q1 = GP64(), GP64()
	LEAQ(at(k.row, k.t, 1, 0), index)
	MOVQ(mem(k.args, offRows), last)
	DECQ(last)
	CMPQ(index, last)
	CMOVQGT(last, index)
	for i, q := range []reg.GPVirtual{k.q0, k.q1} {
		MOVQ(mem(k.args, offLeft+8*i), k.t)
		MOVLQSX(at(k.t, index, 4, 0), q)
		IMULQ(mem(k.args, offSrcStep), q)
		ADDQ(mem(k.args, offSrc), q)
	}
}

// fetch asks for a line of the source and one of the result that are due some rows later: the
// processor's own look-ahead stops at pages, and needs a hint a row to keep up with rows that are
// read with little work in between. Nothing faults where they lie beyond the memory.
func (k *rows) fetch() {
	PREFETCHT1(mem(k.p0, sourceAhead))
	PREFETCHT1(mem(k.out, resultAhead))
}

// source puts the address of a row that an index names into p.
func (k *rows) source(field int, p reg.GPVirtual) {
	index, step, base := k.t, Op(mem(k.args, offSrcStep)), Op(mem(k.args, offSrc))
	switch {
	case k.left == nil:
		MOVQ(mem(k.args, field), k.t)
	case field == offLeft:
		index, step, base = k.left, k.step0, k.base
	default:
		index, step, base = k.right, k.step0, k.base
	}
	MOVLQSX(at(index, k.row, 4, 0), p)
	IMULQ(step, p)
	ADDQ(base, p)
}

func (k *rows) broadcast(bits uint32) reg.VecVirtual {
	y := YMM()
	MOVL(U32(bits), k.t.As32())
	VMOVD(k.t.As32(), y.AsX())
	VPBROADCASTD(y.AsX(), y)
	return y
}

func (k *rows) constants() {
	if k.epi != plain {
		k.a, k.b = field(k.args, offA), field(k.args, offB)
		k.scale, k.off, k.lo, k.hi, k.zero = YMM(), YMM(), YMM(), YMM(), YMM()
		for i, y := range []reg.VecVirtual{k.scale, k.off, k.lo, k.hi} {
			VBROADCASTSS(mem(k.args, offScale+4*i), y)
		}
		VXORPS(k.zero, k.zero, k.zero)
	}
	if k.epi == unitNorm {
		k.by255 = k.broadcast(0x437f0000)
	}
	switch k.dst {
	case bf16:
		k.bias, k.one, k.quiet = k.broadcast(0x7fff), k.broadcast(1), k.broadcast(0x7fc0)
		fallthrough
	case f16:
		k.magnitude, k.most = k.broadcast(0x7fff7fff), YMM()
		VPXOR(k.most, k.most, k.most)
	}
	if k.wide16() {
		k.zero, k.most2 = YMM(), YMM()
		VPXOR(k.zero, k.zero, k.zero)
		VPXOR(k.most2, k.most2, k.most2)
	}
}

// columns goes along one row: eight columns at a time, the last eight overlapping the ones before,
// so that nothing beyond the row is touched.
func (k *rows) columns(name string, blend bool) {
	l := func(s string) string { return name + s }
	// steps makes n columns at a time, while there are as many, then goes on at then.
	steps := func(label, then string, n int, body func()) {
		Label(l(label))
		LEAQ(mem(k.i, n), k.t)
		CMPQ(k.t, k.cols)
		JG(LabelRef(l(then)))
		body()
		MOVQ(k.t, k.i)
		JMP(LabelRef(l(label)))
	}
	// ask asks for so many columns' lines; into the second cache: fetches into the first share its
	// few buffers with the loads.
	ask := func(p reg.Register, size, ahead int) {
		for line := 0; line < 32*size; line += 64 {
			PREFETCHT1(at(p, k.i, size, line+ahead))
		}
	}
	XORQ(k.i, k.i)
	CMPQ(k.cols, U8(8))
	JL(LabelRef(l("Small")))
	if blend && k.q0 == nil && k.epi == plain {
		// Long rows: every line is asked for, of the source and of the result.
		CMPQ(k.cols, U32(longCols))
		JL(LabelRef(l("Four")))
		steps("Long", "One", 32, func() {
			ask(k.p0, k.src.size, sourceAhead)
			if !k.stream {
				ask(k.out, k.dst.size, resultAhead)
			}
			k.four(blend)
		})
	}
	steps("Four", "One", 32, func() {
		for line := 0; k.q0 != nil && line < 32*k.src.size; line += 64 {
			PREFETCHT1(at(k.q0, k.i, k.src.size, line))
			PREFETCHT1(at(k.q1, k.i, k.src.size, line))
		}
		k.four(blend)
	})
	steps("One", "Rest", 8, func() { k.step(8, 0, blend) })
	Label(l("Rest"))
	CMPQ(k.i, k.cols)
	JE(LabelRef("next"))
	LEAQ(mem(k.cols, -8), k.i)
	k.step(8, 0, blend)
	JMP(LabelRef("next"))
	Label(l("Small"))
	CMPQ(k.cols, U8(4))
	JL(LabelRef(l("Tiny")))
	k.step(4, 0, blend)
	LEAQ(mem(k.cols, -4), k.i)
	k.step(4, 0, blend)
	JMP(LabelRef("next"))
	Label(l("Tiny"))
	CMPQ(k.i, k.cols)
	JGE(LabelRef("next"))
	k.step(1, 0, blend)
	INCQ(k.i)
	JMP(LabelRef(l("Tiny")))
}

// four makes 32 columns.
func (k *rows) four(blend bool) {
	if blend && k.wide16() {
		k.step16(0)
		k.step16(16)
		return
	}
	for j := range 4 {
		k.step(8, 8*j, blend)
	}
}

// wide16 says whether sixteen columns go together: halves that keep their place when the even and
// the odd groups of four are taken apart and packed again.
func (k *rows) wide16() bool { return k.src == bf16 && k.dst == bf16 && k.epi == plain }

// step16 blends sixteen columns of bfloat16. Interleaved with zeros, its bits are those of float32.
func (k *rows) step16(first int) {
	m := func(p reg.Register) Mem { return at(p, k.i, 2, 2*first) }
	left, right := YMM(), YMM()
	VMOVDQU(m(k.p0), left)
	VMOVDQU(m(k.p1), right)
	blend := func(v0, d reg.VecVirtual) {
		VSUBPS(v0, d, d)
		VFMADD213PS(v0, k.w, d)
		k.round(8, d, v0)
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

// round makes bfloat16 of float32, in the low halves. NaN is looked for first: the rounding would
// carry some into infinity.
func (k *rows) round(n int, y, u reg.VecVirtual) {
	r, nan := width(y, n), YMM()
	VCMPPS(U8(3), r, r, width(nan, n))
	VPSRLD(U8(16), r, width(u, n))
	VPAND(width(k.one, n), width(u, n), width(u, n))
	VPADDD(width(k.bias, n), width(u, n), width(u, n))
	VPADDD(width(u, n), r, r)
	VPSRLD(U8(16), r, r)
	VBLENDVPS(width(nan, n), width(k.quiet, n), r, r)
}

// width is the part of a register that n float32 take.
func width(v reg.VecVirtual, n int) reg.Register {
	if n == 8 {
		return v
	}
	return v.AsX()
}

// step makes n columns from column i+first on.
func (k *rows) step(n, first int, blend bool) {
	if !blend && k.src == k.dst && k.epi == plain {
		k.bits(n, first)
		return
	}
	v := k.load(n, k.p0, first)
	if blend {
		d := k.load(n, k.p1, first)
		VSUBPS(width(v, n), width(d, n), width(d, n))
		VFMADD213PS(width(v, n), width(k.w, n), width(d, n))
		v = d
	}
	k.finish(n, v, first)
	k.store(n, v, first)
}
