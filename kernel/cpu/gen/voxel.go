package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Predicates of VCMPPS: not ≥, and not <. Both are true for NaN.
const (
	notAtLeast = 0x19
	notBelow   = 0x15
)

// writeFlatten writes flattenGo for eight points at a time.
func writeFlatten() {
	TEXT("flattenRows", NOSPLIT, "func(out *int64, p *float32, n int, grid *uint64) int")
	Pragma("noescape")
	Doc(
		"flattenRows is flattenGo for n points, a multiple of 8. It returns the number of points " +
			"inside.",
	)
	out := Load(Param("out"), GP64())
	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	g := Load(Param("grid"), GP64())
	var lo, size [3]reg.VecVirtual
	for a := range 3 {
		lo[a], size[a] = YMM(), YMM()
		VBROADCASTSS(memOperand(g, 4*a), lo[a])
		VBROADCASTSS(memOperand(g, 12+4*a), size[a])
	}
	inside := GP64()
	XORQ(inside, inside)
	mask := GP32()

	Label("eight")
	// Eight points fill three vectors, which are six halves of four numbers. m03 holds halves 0 and
	// 3, and so on: shuffles within halves can then separate the coordinates.
	m03, m14, m25 := YMM(), YMM(), YMM()
	VMOVUPS(memOperand(p, 0), m03.AsX())
	VINSERTF128(Imm(1), memOperand(p, 48), m03, m03)
	VMOVUPS(memOperand(p, 16), m14.AsX())
	VINSERTF128(Imm(1), memOperand(p, 64), m14, m14)
	VMOVUPS(memOperand(p, 32), m25.AsX())
	VINSERTF128(Imm(1), memOperand(p, 80), m25, m25)
	xy, yz := YMM(), YMM()
	VSHUFPS(Imm(2<<6|1<<4|3<<2|2), m25, m14, xy)
	VSHUFPS(Imm(1<<6|0<<4|2<<2|1), m14, m03, yz)
	x, y, z := YMM(), YMM(), YMM()
	VSHUFPS(Imm(2<<6|0<<4|3<<2|0), xy, m03, x)
	VSHUFPS(Imm(3<<6|1<<4|2<<2|0), xy, yz, y)
	VSHUFPS(Imm(3<<6|0<<4|3<<2|1), m25, yz, z)
	// bad marks points outside. Each coordinate becomes its cell index.
	bad, zero, t := YMM(), YMM(), YMM()
	VXORPS(zero, zero, zero)
	for a, q := range []reg.VecVirtual{x, y, z} {
		VSUBPS(lo[a], q, q)
		VDIVPS(size[a], q, q)
		if a == 0 {
			VCMPPS(Imm(notAtLeast), zero, q, bad)
		} else {
			VCMPPS(Imm(notAtLeast), zero, q, t)
			VORPS(t, bad, bad)
		}
		VBROADCASTSS(memOperand(g, 24+4*a), t)
		VCMPPS(Imm(notBelow), t, q, t)
		VORPS(t, bad, bad)
		VCVTTPS2DQ(q, q)
	}
	// The flat index (x·gy + y)·gz + z.
	VPBROADCASTD(memOperand(g, 36), t)
	VPMULLD(t, x, x)
	VPADDD(y, x, x)
	VPBROADCASTD(memOperand(g, 40), t)
	VPMULLD(t, x, x)
	VPADDD(z, x, x)
	VPOR(bad, x, x) // set all bits, which is -1
	VMOVMSKPS(bad, mask)
	XORL(U32(0xff), mask)
	POPCNTL(mask, mask)
	ADDQ(mask.As64(), inside)
	VPMOVSXDQ(x.AsX(), t)
	VMOVDQU(t, memOperand(out, 0))
	VEXTRACTI128(Imm(1), x, x.AsX())
	VPMOVSXDQ(x.AsX(), t)
	VMOVDQU(t, memOperand(out, 32))
	ADDQ(U32(96), p)
	ADDQ(U32(64), out)
	SUBQ(U32(8), n)
	JNZ(LabelRef("eight"))
	VZEROUPPER()
	Store(inside, ReturnIndex(0))
	RET()
}

// loadField loads the argument field at offset.
func loadField(a reg.Register, offset int) reg.GPVirtual {
	r := GP64()
	MOVQ(memOperand(a, offset), r)
	return r
}
