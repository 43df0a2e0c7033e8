package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// Offsets of the fields of searchArgs.
const (
	seekStamps = 8 * iota
	seekLast   // index of the last stamp
	seekTargets
	seekRows
	seekLeft
	seekRight
	seekWeight
	seekMaxGap
	seekStart // stamp of the sample that guesses begin at
	seekFirst // its index, float64
	seekRate  // samples a nanosecond
)

// plan writes the search for the interval that holds each target: a guess from a rate, one step either way, and a proof. The first row that the proof
// fails for, and whose gap is too long, is left to Go.
func plan() {
	TEXT("bracket", NOSPLIT, "func(a *uint16) int")
	Pragma("noescape")
	Doc("bracket finds s[k] ≤ t < s[k+1] and the weight of t for rows from the first on, and returns how many it did. It needs four stamps or more.")
	a := Load(Param("a"), GP64())
	row, rows := GP64(), GP64()
	stamps, targets, left, right, weight := GP64(), GP64(), GP64(), GP64(), GP64()
	t, k, lo, hi := GP64(), GP64(), GP64(), GP64()
	one := GP64()
	MOVQ(mem(a, seekStamps), stamps)
	MOVQ(mem(a, seekTargets), targets)
	MOVQ(mem(a, seekLeft), left)
	MOVQ(mem(a, seekRight), right)
	MOVQ(mem(a, seekWeight), weight)
	MOVQ(mem(a, seekRows), rows)
	first, rate := XMM(), XMM()
	VMOVSD(mem(a, seekFirst), first)
	VMOVSD(mem(a, seekRate), rate)
	MOVQ(U32(1), one)
	XORQ(row, row)
	x, y := XMM(), XMM()
	VXORPS(x, x, x)
	VXORPS(y, y, y)

	Label("row")
	CMPQ(row, rows)
	JGE(LabelRef("end"))
	MOVQ(at(targets, row, 8, 0), t)
	MOVQ(t, k)
	SUBQ(mem(a, seekStart), k)
	g := XMM()
	VXORPS(g, g, g)
	VCVTSI2SDQ(k, g, g)
	VFMADD213SD(first, rate, g)
	VCVTTSD2SIQ(g, k)
	// One step from here must stay inside: 1 … last-2, and NaN is far below.
	CMPQ(k, one)
	CMOVQLT(one, k)
	MOVQ(mem(a, seekLast), lo)
	SUBQ(U8(2), lo)
	CMPQ(k, lo)
	CMOVQGT(lo, k)
	// k += (s[k+1] ≤ t) - (s[k] > t)
	XORL(lo.As32(), lo.As32())
	XORL(hi.As32(), hi.As32())
	CMPQ(at(stamps, k, 8, 8), t)
	SETLE(hi.As8())
	CMPQ(at(stamps, k, 8, 0), t)
	SETGT(lo.As8())
	ADDQ(hi, k)
	SUBQ(lo, k)
	MOVQ(at(stamps, k, 8, 0), lo)
	MOVQ(at(stamps, k, 8, 8), hi)
	SUBQ(lo, t)
	SUBQ(lo, hi)
	// One comparison for both ends: t before s[k] is a huge unsigned difference.
	CMPQ(t, hi)
	JAE(LabelRef("end"))
	CMPQ(hi, mem(a, seekMaxGap))
	JG(LabelRef("end"))
	n, d := XMM(), XMM()
	VXORPS(n, n, n)
	VXORPS(d, d, d)
	VCVTSI2SDQ(t, n, n)
	VCVTSI2SDQ(hi, d, d)
	VDIVSD(d, n, n)
	VMOVSD(n, at(weight, row, 8, 0))
	MOVL(k.As32(), at(left, row, 4, 0))
	INCQ(k)
	MOVL(k.As32(), at(right, row, 4, 0))
	INCQ(row)
	JMP(LabelRef("row"))
	Label("end")
	Store(row, ReturnIndex(0))
	RET()
}

// sorted writes the proof of order.
func sorted() {
	TEXT("sorted", NOSPLIT, "func(p *int64, n int) bool")
	Pragma("noescape")
	Doc("sorted says whether n numbers do not decrease.")
	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	bad := YMM()
	VPXOR(bad, bad, bad)
	Label("vector")
	CMPQ(n, U8(9))
	JL(LabelRef("scalar"))
	for j := range 2 {
		u, v := YMM(), YMM()
		VMOVDQU(mem(p, 32*j), u)
		VMOVDQU(mem(p, 32*j+8), v)
		VPCMPGTQ(v, u, u) // u > v
		VPOR(u, bad, bad)
	}
	ADDQ(U8(64), p)
	SUBQ(U8(8), n)
	JMP(LabelRef("vector"))
	t := GP64()
	Label("scalar")
	CMPQ(n, U8(2))
	JL(LabelRef("end"))
	MOVQ(mem(p, 0), t)
	CMPQ(t, mem(p, 8))
	JG(LabelRef("no"))
	ADDQ(U8(8), p)
	DECQ(n)
	JMP(LabelRef("scalar"))
	ok := GP8()
	Label("end")
	VPTEST(bad, bad)
	SETEQ(ok)
	VZEROUPPER()
	Store(ok, ReturnIndex(0))
	RET()
	Label("no")
	VZEROUPPER()
	MOVB(U8(0), ok)
	Store(ok, ReturnIndex(0))
	RET()
}
