package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of searchArgs.
const (
	seekTimestamps = 8 * iota
	seekLast       // index of the last timestamp
	seekTargets
	seekRows
	seekLeft
	seekRight
	seekWeight
	seekMaxGap
	seekStart // timestamp of the sample that guesses begin at
	seekFirst // its index, float64
	seekRate  // samples a nanosecond
)

// plan writes the search for the interval that holds each target: a guess from a rate, one step
// either way, and a proof. The first row that the proof fails for, or whose gap is too long, is
// left to Go, and so are the three beside it: four rows go together.
func plan() {
	TEXT("bracket", NOSPLIT, "func(a *uint16) int")
	Pragma("noescape")
	Doc(
		"bracket finds s[k] ≤ t < s[k+1] and the weight of t for rows from the first on, four at a time, and returns how many it did. It needs four timestamps or more.",
	)
	a := Load(Param("a"), GP64())
	row := GP64()
	XORQ(row, row)
	rows, timestamps, targets, left, right, weight := field(
		a,
		seekRows,
	), field(
		a,
		seekTimestamps,
	), field(
		a,
		seekTargets,
	), field(
		a,
		seekLeft,
	), field(
		a,
		seekRight,
	), field(
		a,
		seekWeight,
	)
	first, rate := YMM(), YMM()
	VBROADCASTSD(mem(a, seekFirst), first)
	VBROADCASTSD(mem(a, seekRate), rate)
	u, v, x := GP64(), GP64(), GP64()
	start, gap, most, magic := YMM(), YMM(), XMM(), YMM()
	VPBROADCASTQ(mem(a, seekStart), start)
	VPBROADCASTQ(mem(a, seekMaxGap), gap)
	MOVQ(mem(a, seekLast), u)
	SUBQ(U8(2), u)
	VMOVD(u.As32(), most)
	VPBROADCASTD(most, most)
	// 1.5·2^52: with an integer of less than 2^51, of either sign, added to its bits, it is a
	// float64 that much greater
	MOVQ(U64(0x4338000000000000), u)
	VMOVQ(u, magic.AsX())
	VPBROADCASTQ(magic.AsX(), magic)
	ones := YMM()
	VPCMPEQD(ones, ones, ones) // -1 in each lane

	// neighbours loads s[k] and s[k+1] of four rows: lo and hi.
	neighbours := func(k [4]reg.GPVirtual) (lo, hi reg.VecVirtual) {
		p, q := YMM(), YMM()
		VMOVDQU(at(timestamps, k[0], 8, 0), p.AsX())
		VMOVDQU(at(timestamps, k[1], 8, 0), q.AsX())
		VINSERTI128(U8(1), at(timestamps, k[2], 8, 0), p, p)
		VINSERTI128(U8(1), at(timestamps, k[3], 8, 0), q, q)
		lo, hi = YMM(), YMM()
		VPUNPCKLQDQ(q, p, lo)
		VPUNPCKHQDQ(q, p, hi)
		return lo, hi
	}
	Label("four")
	LEAQ(mem(row, 4), x)
	CMPQ(x, rows)
	JG(LabelRef("end"))
	t, d := YMM(), YMM()
	VMOVDQU(at(targets, row, 8, 0), t)
	VPSUBQ(start, t, d)
	VPADDQ(magic, d, d)
	VSUBPD(magic, d, d)
	VFMADD213PD(first, rate, d)
	k32 := XMM()
	VCVTTPD2DQY(d, k32)
	// One step from here must stay inside: 1 … last-2. What is no number, or too large, is far
	// below.
	low := XMM()
	VPABSD(ones.AsX(), low)
	VPMAXSD(low, k32, k32)
	VPMINSD(most, k32, k32)
	VMOVQ(k32, u)
	VPEXTRQ(U8(1), k32, v)
	k := [4]reg.GPVirtual{GP64(), u, x, v}
	MOVL(u.As32(), k[0].As32())
	SHRQ(U8(32), u)
	MOVL(v.As32(), x.As32())
	SHRQ(U8(32), v)
	lo, hi := neighbours(k)
	// k += (s[k+1] ≤ t) - (s[k] > t)
	kk := YMM()
	VPMOVSXDQ(k32, kk)
	VPCMPGTQ(t, lo, lo)
	VPCMPGTQ(t, hi, hi)
	VPADDQ(lo, kk, kk)
	VPADDQ(hi, kk, kk)
	VPSUBQ(ones, kk, kk)
	top := XMM()
	VEXTRACTI128(U8(1), kk, top)
	VMOVQ(kk.AsX(), k[0])
	VPEXTRQ(U8(1), kk.AsX(), k[1])
	VMOVQ(top, k[2])
	VPEXTRQ(U8(1), top, k[3])
	VSHUFPS(U8(0x88), top, kk.AsX(), k32)
	lo, hi = neighbours(k)
	// 0 ≤ t-s[k] < s[k+1]-s[k] ≤ the longest gap
	VPSUBQ(lo, t, t)
	VPSUBQ(lo, hi, hi)
	inside, bad := YMM(), YMM()
	VPCMPGTQ(t, hi, inside)
	VPCMPGTQ(gap, hi, bad)
	VPOR(t, bad, bad) // the sign of t-s[k]
	VPANDN(inside, bad, inside)
	VMOVMSKPD(inside, u.As32())
	CMPL(u.As32(), U8(15))
	JNE(LabelRef("end"))
	// Both are below 2^52: with the bits of 2^52 above them they are float64 2^52 + x.
	VPOR(four(0x1p52), t, t)
	VPOR(four(0x1p52), hi, hi)
	VSUBPD(four(0x1p52), t, t)
	VSUBPD(four(0x1p52), hi, hi)
	VDIVPD(hi, t, t)
	VMOVUPD(t, at(weight, row, 8, 0))
	VMOVDQU(k32, at(left, row, 4, 0))
	VPSUBD(ones.AsX(), k32, k32)
	VMOVDQU(k32, at(right, row, 4, 0))
	ADDQ(U8(4), row)
	JMP(LabelRef("four"))
	Label("end")
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
