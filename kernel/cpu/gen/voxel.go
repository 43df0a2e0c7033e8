package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Comparisons of VCMPPS: not ≥ and not <, true for NaN.
const (
	notAtLeast = 0x19
	notBelow   = 0x15
)

// flatten writes flattenGo for eight points at a time.
func flatten() {
	TEXT("flattenRows", NOSPLIT, "func(out *int64, p *float32, n int, grid *uint64) int")
	Pragma("noescape")
	Doc("flattenRows is flattenGo for n points, a multiple of 8. It returns how many are inside.")
	out, p, n, g := Load(Param("out"), GP64()), Load(Param("p"), GP64()), Load(Param("n"), GP64()), Load(Param("grid"), GP64())
	var lo, size [3]reg.VecVirtual
	for a := range 3 {
		lo[a], size[a] = YMM(), YMM()
		VBROADCASTSS(mem(g, 4*a), lo[a])
		VBROADCASTSS(mem(g, 12+4*a), size[a])
	}
	inside := GP64()
	XORQ(inside, inside)
	mask := GP32()

	Label("eight")
	// Eight points are three vectors; their halves are loaded crosswise, so that shuffles within halves take them apart.
	m03, m14, m25 := YMM(), YMM(), YMM()
	VMOVUPS(mem(p, 0), m03.AsX())
	VINSERTF128(Imm(1), mem(p, 48), m03, m03)
	VMOVUPS(mem(p, 16), m14.AsX())
	VINSERTF128(Imm(1), mem(p, 64), m14, m14)
	VMOVUPS(mem(p, 32), m25.AsX())
	VINSERTF128(Imm(1), mem(p, 80), m25, m25)
	xy, yz := YMM(), YMM()
	VSHUFPS(Imm(2<<6|1<<4|3<<2|2), m25, m14, xy)
	VSHUFPS(Imm(1<<6|0<<4|2<<2|1), m14, m03, yz)
	x, y, z := YMM(), YMM(), YMM()
	VSHUFPS(Imm(2<<6|0<<4|3<<2|0), xy, m03, x)
	VSHUFPS(Imm(3<<6|1<<4|2<<2|0), xy, yz, y)
	VSHUFPS(Imm(3<<6|0<<4|3<<2|1), m25, yz, z)
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
		VBROADCASTSS(mem(g, 24+4*a), t)
		VCMPPS(Imm(notBelow), t, q, t)
		VORPS(t, bad, bad)
		VCVTTPS2DQ(q, q)
	}
	VPBROADCASTD(mem(g, 36), t)
	VPMULLD(t, x, x)
	VPADDD(y, x, x)
	VPBROADCASTD(mem(g, 40), t)
	VPMULLD(t, x, x)
	VPADDD(z, x, x)
	VPOR(bad, x, x) // all bits: -1
	VMOVMSKPS(bad, mask)
	XORL(U32(0xff), mask)
	POPCNTL(mask, mask)
	ADDQ(mask.As64(), inside)
	VPMOVSXDQ(x.AsX(), t)
	VMOVDQU(t, mem(out, 0))
	VEXTRACTI128(Imm(1), x, x.AsX())
	VPMOVSXDQ(x.AsX(), t)
	VMOVDQU(t, mem(out, 32))
	ADDQ(U32(96), p)
	ADDQ(U32(64), out)
	SUBQ(U32(8), n)
	JNZ(LabelRef("eight"))
	VZEROUPPER()
	Store(inside, ReturnIndex(0))
	RET()
}

// Offsets of the fields of sumArgs.
const (
	sumAcc = 8 * iota
	sumCount
	sumKeys
	sumN
	sumRows
	sumMask
	sumRowBits
	sumFirst
	sumStep
	sumBlocks // all but the last
	sumOut
	sumOutStep
	sumLimit
	sumTail
)

// accumulate writes the sums of a bucket's points, in their order.
func accumulate() {
	TEXT("accumulate", NOSPLIT, "func(a *uint32)")
	Pragma("noescape")
	Doc("accumulate adds the rows of n keys, from 1 on, to the sums of their cells, and counts them.")
	a := Load(Param("a"), GP64())
	MOVQ(mem(a, sumRowBits), reg.RCX)
	acc, count, keys, n, rows := field(a, sumAcc), field(a, sumCount), field(a, sumKeys), field(a, sumN), field(a, sumRows)
	cellBytes := field(a, sumBlocks) // of a cell's sums
	INCQ(cellBytes)
	SHLQ(U8(5), cellBytes)
	mask := XMM()
	VMOVDQU(mem(a, sumTail), mask)
	cell, row, b := GP64(), GP64(), GP64()
	Label("key")
	MOVQ(mem(keys, 0), cell)
	MOVQ(cell, row)
	SHRQ(reg.CL, cell)
	SUBQ(mem(a, sumFirst), cell)
	ANDQ(mem(a, sumMask), row)
	IMULQ(mem(a, sumStep), row)
	ADDQ(rows, row)
	INCL(at(count, cell, 4, 0))
	IMULQ(cellBytes, cell)
	ADDQ(acc, cell)
	MOVQ(mem(a, sumBlocks), b)
	x, y := XMM(), YMM()
	TESTQ(b, b)
	JZ(LabelRef("last"))
	Label("block")
	VCVTPS2PD(mem(row, 0), y)
	VADDPD(mem(cell, 0), y, y)
	VMOVUPD(y, mem(cell, 0))
	ADDQ(U8(16), row)
	ADDQ(U8(32), cell)
	DECQ(b)
	JNZ(LabelRef("block"))
	Label("last")
	VMASKMOVPS(mem(row, 0), mask, x)
	VCVTPS2PD(x, y)
	VADDPD(mem(cell, 0), y, y)
	VMOVUPD(y, mem(cell, 0))
	ADDQ(U8(8), keys)
	DECQ(n)
	JNZ(LabelRef("key"))
	VZEROUPPER()
	RET()
}

// field is a field of the arguments.
func field(a reg.Register, offset int) reg.GPVirtual {
	r := GP64()
	MOVQ(mem(a, offset), r)
	return r
}

// sumRuns writes the rows of cells whose keys lie side by side.
func sumRuns() {
	TEXT("sumRuns", NOSPLIT, "func(a *uint32)")
	Pragma("noescape")
	Doc("sumRuns makes the rows of n cells, from 1 on: cell i is keys count[i] … count[i+1]-1. It writes 16 bytes at a time: what lies beyond a cell's row the next one overwrites.")
	a := Load(Param("a"), GP64())
	starts, keys, n, rows, out := field(a, sumCount), field(a, sumKeys), field(a, sumN), field(a, sumRows), field(a, sumOut)
	mask, limit := XMM(), XMM()
	VMOVDQU(mem(a, sumTail), mask)
	VMOVD(mem(a, sumLimit), limit)
	i, end, k, to, row, b, disp, t := GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	x, y, sum, by := XMM(), YMM(), YMM(), YMM()

	Label("run")
	MOVL(mem(starts, 4), end.As32())
	MOVL(mem(starts, 0), t.As32())
	MOVL(end.As32(), i.As32())
	SUBL(t.As32(), i.As32())
	VMOVD(i.As32(), by.AsX())
	VPMINUD(limit, by.AsX(), by.AsX())
	VPBROADCASTD(by.AsX(), by.AsX())
	VCVTDQ2PD(by.AsX(), by)
	MOVQ(mem(a, sumBlocks), b)
	MOVQ(out, to)
	XORQ(disp, disp)
	Label("block")
	VXORPS(sum, sum, sum)
	MOVL(mem(starts, 0), i.As32())
	Label("key")
	// A row some keys ahead is asked for: its time passes while these are added.
	MOVQ(at(keys, i, 8, 8*ahead), k)
	ANDQ(mem(a, sumMask), k)
	IMULQ(mem(a, sumStep), k)
	PREFETCHT0(at(rows, k, 1, 0))
	MOVQ(at(keys, i, 8, 0), row)
	ANDQ(mem(a, sumMask), row)
	IMULQ(mem(a, sumStep), row)
	ADDQ(rows, row)
	TESTQ(b, b)
	JZ(LabelRef("tail"))
	VMOVUPS(at(row, disp, 1, 0), x)
	JMP(LabelRef("add"))
	Label("tail")
	VMASKMOVPS(at(row, disp, 1, 0), mask, x)
	Label("add")
	VCVTPS2PD(x, y)
	VADDPD(y, sum, sum)
	INCQ(i)
	CMPQ(i, end)
	JL(LabelRef("key"))
	VDIVPD(by, sum, sum)
	VCVTPD2PSY(sum, sum.AsX())
	VMOVUPS(sum.AsX(), mem(to, 0))
	ADDQ(U8(16), to)
	ADDQ(U8(16), disp)
	DECQ(b)
	JNS(LabelRef("block"))
	ADDQ(mem(a, sumOutStep), out)
	ADDQ(U8(4), starts)
	DECQ(n)
	JNZ(LabelRef("run"))
	VZEROUPPER()
	RET()
}

// ahead is how many keys before its use a row is asked for. As many may be read beyond the keys.
const ahead = 24

// settle writes the division and the only rounding of a bucket's sums, and their clearing.
func settle(far bool) {
	name, doc := "settle", "settle turns the sums of n cells, a multiple of 4, into results, 16 bytes at a time: what it writes beyond a cell's row the next one overwrites. It leaves sums and counts 0."
	store := func(v reg.Register, m Mem) { VMOVUPS(v, m) }
	if far {
		name, doc = "settleFar", "settleFar is settle past the caches: rows of whole blocks, at multiples of 16 bytes."
		store = func(v reg.Register, m Mem) { VMOVNTPS(v, m) }
	}
	TEXT(name, NOSPLIT, "func(a *uint32)")
	Pragma("noescape")
	Doc(doc)
	a := Load(Param("a"), GP64())
	acc, count, n, out, step, blocks := field(a, sumAcc), field(a, sumCount), field(a, sumN), field(a, sumOut), field(a, sumOutStep), field(a, sumBlocks)
	INCQ(blocks)
	limit, one, zero, c := XMM(), XMM(), YMM(), XMM()
	VPBROADCASTD(mem(a, sumLimit), limit)
	b := GP64()
	MOVQ(U32(1), b)
	VMOVD(b.As32(), one)
	VPBROADCASTD(one, one)
	VXORPS(zero, zero, zero)
	cells, to, by, v := GP64(), GP64(), YMM(), YMM()
	sumBytes := GP64()
	MOVQ(blocks, sumBytes)
	SHLQ(U8(7), sumBytes)

	Label("four")
	VMOVDQU(mem(count, 0), c)
	VPTEST(c, c)
	JNZ(LabelRef("some"))
	// Nothing in four cells: no division, and nothing to clear.
	MOVQ(U32(4), cells)
	Label("emptyCell")
	MOVQ(out, to)
	MOVQ(blocks, b)
	Label("emptyBlock")
	store(zero.AsX(), mem(to, 0))
	ADDQ(U8(16), to)
	DECQ(b)
	JNZ(LabelRef("emptyBlock"))
	ADDQ(step, out)
	DECQ(cells)
	JNZ(LabelRef("emptyCell"))
	ADDQ(sumBytes, acc)
	JMP(LabelRef("next"))

	Label("some")
	VMOVDQU(zero.AsX(), mem(count, 0))
	VPMAXUD(one, c, c)
	VPMINUD(limit, c, c)
	MOVQ(U32(4), cells)
	Label("cell")
	VPBROADCASTD(c, by.AsX())
	VPSRLDQ(U8(4), c, c)
	VCVTDQ2PD(by.AsX(), by)
	MOVQ(out, to)
	MOVQ(blocks, b)
	Label("block")
	VMOVUPD(mem(acc, 0), v)
	VMOVUPD(zero, mem(acc, 0))
	VDIVPD(by, v, v)
	VCVTPD2PSY(v, v.AsX())
	store(v.AsX(), mem(to, 0))
	ADDQ(U8(32), acc)
	ADDQ(U8(16), to)
	DECQ(b)
	JNZ(LabelRef("block"))
	ADDQ(step, out)
	DECQ(cells)
	JNZ(LabelRef("cell"))

	Label("next")
	ADDQ(U8(16), count)
	SUBQ(U8(4), n)
	JNZ(LabelRef("four"))
	if far {
		SFENCE()
	}
	VZEROUPPER()
	RET()
}
