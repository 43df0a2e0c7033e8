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
	seekStart // timestamp of the sample from which guesses are computed
	seekFirst // index of that sample, as float64
	seekRate  // samples per nanosecond
)

// writeBracket writes the search for the interval that contains each target. It guesses an index
// from a rate, moves by at most one step, and verifies the result. It handles four rows together.
// If the check of a row fails, or its gap is too long, these four rows and all later ones are left
// to Go.
func writeBracket() {
	TEXT("bracket", NOSPLIT, "func(a *uint16) int")
	Pragma("noescape")
	Doc(
		"bracket finds s[k] ≤ t < s[k+1] and the weight of t for rows from the first on, four at "+
			"a time.",
		"It returns the number of rows. It needs at least four timestamps.",
	)
	a := Load(Param("a"), GP64())
	row := GP64()
	XORQ(row, row)
	rows := loadField(a, seekRows)
	timestamps := loadField(a, seekTimestamps)
	targets := loadField(a, seekTargets)
	left := loadField(a, seekLeft)
	right := loadField(a, seekRight)
	weight := loadField(a, seekWeight)
	first, rate := YMM(), YMM()
	VBROADCASTSD(memOperand(a, seekFirst), first)
	VBROADCASTSD(memOperand(a, seekRate), rate)
	u, v, x := GP64(), GP64(), GP64()
	start := YMM()
	gap := YMM()
	most := XMM()
	magic := YMM()
	VPBROADCASTQ(memOperand(a, seekStart), start)
	VPBROADCASTQ(memOperand(a, seekMaxGap), gap)
	MOVQ(memOperand(a, seekLast), u)
	SUBQ(U8(2), u)
	VMOVD(u.As32(), most)
	VPBROADCASTD(most, most)
	// 1.5·2^52: adding an integer of less than 2^51, of either sign, to its bits gives the float64
	// that is greater by this integer
	MOVQ(U64(0x4338000000000000), u)
	VMOVQ(u, magic.AsX())
	VPBROADCASTQ(magic.AsX(), magic)
	ones := YMM()
	VPCMPEQD(ones, ones, ones) // -1 in each lane

	// neighbours loads s[k] and s[k+1] of four rows into lo and hi.
	neighbours := func(k [4]reg.GPVirtual) (lo, hi reg.VecVirtual) {
		p, q := YMM(), YMM()
		VMOVDQU(indexedOperand(timestamps, k[0], 8, 0), p.AsX())
		VMOVDQU(indexedOperand(timestamps, k[1], 8, 0), q.AsX())
		VINSERTI128(U8(1), indexedOperand(timestamps, k[2], 8, 0), p, p)
		VINSERTI128(U8(1), indexedOperand(timestamps, k[3], 8, 0), q, q)
		lo, hi = YMM(), YMM()
		VPUNPCKLQDQ(q, p, lo)
		VPUNPCKHQDQ(q, p, hi)
		return lo, hi
	}
	// The guess for each row is rate·(t - start) + first. magic converts the difference to float64.
	Label("four")
	LEAQ(memOperand(row, 4), x)
	CMPQ(x, rows)
	JG(LabelRef("end"))
	t, d := YMM(), YMM()
	VMOVDQU(indexedOperand(targets, row, 8, 0), t)
	VPSUBQ(start, t, d)
	VPADDQ(magic, d, d)
	VSUBPD(magic, d, d)
	VFMADD213PD(first, rate, d)
	k32 := XMM()
	VCVTTPD2DQY(d, k32)
	// The guess is limited to 1 … last-2, because one step from it must stay inside. NaN and
	// numbers that are too large convert to the smallest int32.
	low := XMM()
	VPABSD(ones.AsX(), low)
	VPMAXSD(low, k32, k32)
	VPMINSD(most, k32, k32)
	VMOVQ(k32, u)
	VPEXTRQ(U8(1), k32, v)
	// Copy the four guesses to general registers, for the loads of neighbours.
	k := [4]reg.GPVirtual{GP64(), u, x, v}
	MOVL(u.As32(), k[0].As32())
	SHRQ(U8(32), u)
	MOVL(v.As32(), x.As32())
	SHRQ(U8(32), v)
	lo, hi := neighbours(k)
	// k += (s[k+1] ≤ t) - (s[k] > t). A comparison gives -1 if it is true: lo is -(s[k] > t), and
	// hi is -(s[k+1] > t), to which 1 is added.
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
	// Check 0 ≤ t-s[k] < s[k+1]-s[k] ≤ maxGap for all four rows.
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
	// Both numbers are below 2^52. Or-ing the bits of 2^52 gives the float64 2^52 + x.
	VPOR(fourLanes(0x1p52), t, t)
	VPOR(fourLanes(0x1p52), hi, hi)
	VSUBPD(fourLanes(0x1p52), t, t)
	VSUBPD(fourLanes(0x1p52), hi, hi)
	VDIVPD(hi, t, t)
	VMOVUPD(t, indexedOperand(weight, row, 8, 0))
	VMOVDQU(k32, indexedOperand(left, row, 4, 0))
	VPSUBD(ones.AsX(), k32, k32)
	VMOVDQU(k32, indexedOperand(right, row, 4, 0))
	ADDQ(U8(4), row)
	JMP(LabelRef("four"))
	Label("end")
	VZEROUPPER()
	Store(row, ReturnIndex(0))
	RET()
}

// writeSorted writes the check that numbers do not decrease.
func writeSorted() {
	TEXT("sorted", NOSPLIT, "func(p *int64, n int) bool")
	Pragma("noescape")
	Doc("sorted reports whether n numbers do not decrease.")
	p := Load(Param("p"), GP64())
	n := Load(Param("n"), GP64())
	bad := YMM()
	VPXOR(bad, bad, bad)
	Label("vector")
	CMPQ(n, U8(9))
	JL(LabelRef("scalar"))
	for j := range 2 {
		u, v := YMM(), YMM()
		VMOVDQU(memOperand(p, 32*j), u)
		VMOVDQU(memOperand(p, 32*j+8), v)
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
	MOVQ(memOperand(p, 0), t)
	CMPQ(t, memOperand(p, 8))
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
