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
	seekSpan  // room for the length of each row's interval
)

// plan writes the search for the interval that holds each target: a guess from a rate, one step either way, and a proof. The first row that the proof
// fails for, or whose gap is too long, is left to Go.
func plan() {
	TEXT("bracket", NOSPLIT, "func(a *uint16) int")
	Pragma("noescape")
	Doc("bracket finds s[k] ≤ t < s[k+1] and the weight of t for rows from the first on, and returns how many it did. It needs four stamps or more.")
	a := Load(Param("a"), GP64())
	row := GP64()
	stamps, targets, left, right, weight, span := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	start, most := GP64(), GP64()
	t, k, lo, hi := GP64(), GP64(), GP64(), GP64()
	one := GP64()
	XORQ(row, row)
	CMPQ(row, mem(a, seekRows))
	JGE(LabelRef("none"))
	MOVQ(mem(a, seekStamps), stamps)
	MOVQ(mem(a, seekTargets), targets)
	MOVQ(mem(a, seekLeft), left)
	MOVQ(mem(a, seekRight), right)
	MOVQ(mem(a, seekWeight), weight)
	MOVQ(mem(a, seekSpan), span)
	MOVQ(mem(a, seekStart), start)
	MOVQ(mem(a, seekLast), most)
	SUBQ(U8(2), most)
	first, rate := XMM(), XMM()
	VMOVSD(mem(a, seekFirst), first)
	VMOVSD(mem(a, seekRate), rate)
	MOVQ(U32(1), one)
	g := XMM()

	Label("row")
	MOVQ(at(targets, row, 8, 0), t)
	MOVQ(t, k)
	SUBQ(start, k)
	VXORPS(g, g, g)
	VCVTSI2SDQ(k, g, g)
	VFMADD213SD(first, rate, g)
	VCVTTSD2SIQ(g, k)
	// One step from here must stay inside: 1 … last-2, and NaN is far below.
	CMPQ(k, one)
	CMOVQLT(one, k)
	CMPQ(k, most)
	CMOVQGT(most, k)
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
	MOVQ(t, at(weight, row, 8, 0))
	MOVQ(hi, at(span, row, 8, 0))
	MOVL(k.As32(), at(left, row, 4, 0))
	INCQ(k)
	MOVL(k.As32(), at(right, row, 4, 0))
	INCQ(row)
	CMPQ(row, mem(a, seekRows))
	JLT(LabelRef("row"))
	Label("end")

	// The weights, four at a time. Both numbers are below 2^52: with the bits of 2^52 above them they are float64 2^52 + x.
	magic, x, y := YMM(), YMM(), YMM()
	MOVQ(U64(0x4330000000000000), t)
	VMOVQ(t, magic.AsX())
	VPBROADCASTQ(magic.AsX(), magic)
	XORQ(k, k)
	Label("four")
	LEAQ(mem(k, 4), t)
	CMPQ(t, row)
	JG(LabelRef("single"))
	VPOR(at(weight, k, 8, 0), magic, x)
	VPOR(at(span, k, 8, 0), magic, y)
	VSUBPD(magic, x, x)
	VSUBPD(magic, y, y)
	VDIVPD(y, x, x)
	VMOVUPD(x, at(weight, k, 8, 0))
	MOVQ(t, k)
	JMP(LabelRef("four"))
	Label("single")
	CMPQ(k, row)
	JGE(LabelRef("none"))
	VXORPS(x.AsX(), x.AsX(), x.AsX())
	VXORPS(y.AsX(), y.AsX(), y.AsX())
	VCVTSI2SDQ(at(weight, k, 8, 0), x.AsX(), x.AsX())
	VCVTSI2SDQ(at(span, k, 8, 0), y.AsX(), y.AsX())
	VDIVSD(y.AsX(), x.AsX(), x.AsX())
	VMOVSD(x.AsX(), at(weight, k, 8, 0))
	INCQ(k)
	JMP(LabelRef("single"))
	Label("none")
	VZEROUPPER()
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
