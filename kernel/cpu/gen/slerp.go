package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Minimax polynomials, with the highest power first: sin(√v)/√v for v in [0, π²/4] with error
// 2e-17, and acos(1-y)²/y for y in [0, 1] with error 2e-15.
var (
	sinPoly = []float64{
		0x1.883810fd15ca6p-49,
		-0x1.ae439bf37aa2bp-41,
		0x1.6123ccce4bceep-33,
		-0x1.ae6454d04a591p-26,
		0x1.71de3a528cbc0p-19,
		-0x1.a01a01a0147e6p-13,
		0x1.11111111110bcp-7,
		-0x1.5555555555555p-3,
		1,
	}
	acosPoly = []float64{
		0x1.b55b6128f3ef3p-15,
		-0x1.5bbf3309c0e9bp-12,
		0x1.0868f2ca5c4e5p-10,
		-0x1.e8097706647e1p-10,
		0x1.3423f7d4944f1p-9,
		-0x1.0f41bf71c10e0p-9,
		0x1.717839dfaaed2p-10,
		-0x1.1c7c005e19bffp-11,
		0x1.017a94eb5f96bp-11,
		0x1.26a51cd4b705dp-11,
		0x1.91f08dcf47a63p-10,
		0x1.f82e922558343p-9,
		0x1.4ce296a6403f3p-7,
		0x1.d41d3b76ee1bcp-6,
		0x1.6c16c176e3413p-4,
		0x1.555555554e1acp-2,
		0x1.0000000000006p+1,
	}
)

// constants holds the memory of each constant that fourLanes has written.
var constants = map[uint64]Mem{}

// fourLanes returns a constant that is repeated in four lanes.
func fourLanes(x float64) Mem {
	b := math.Float64bits(x)
	if m, ok := constants[b]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("four%016x", b), RODATA|NOPTR)
	for i := range 4 {
		DATA(8*i, U64(b))
	}
	constants[b] = m
	return m
}

// evalPoly returns the value of a polynomial at z.
func evalPoly(coefficients []float64, z reg.VecVirtual) reg.VecVirtual {
	y := YMM()
	VMOVUPD(fourLanes(coefficients[0]), y)
	for _, c := range coefficients[1:] {
		VFMADD213PD(fourLanes(c), z, y)
	}
	return y
}

// polyHalves is evalPoly with separate even and odd powers, which halves the dependency chain.
func polyHalves(coefficients []float64, y reg.VecVirtual) reg.VecVirtual {
	z := YMM()
	VMULPD(y, y, z)
	var part [2][]float64 // even, odd
	for i, c := range coefficients {
		k := (len(coefficients) - 1 - i) % 2
		part[k] = append(part[k], c)
	}
	even, odd := evalPoly(part[0], z), evalPoly(part[1], z)
	VFMADD231PD(odd, y, even)
	return even
}

// transposeLanes transposes a 4×4 matrix of float64: rows of quaternions become vectors of one
// component each, or the reverse.
func transposeLanes(r [4]reg.VecVirtual) (c [4]reg.VecVirtual) {
	var t [4]reg.VecVirtual
	for i := range t {
		t[i] = YMM()
	}
	VUNPCKLPD(r[1], r[0], t[0])
	VUNPCKHPD(r[1], r[0], t[1])
	VUNPCKLPD(r[3], r[2], t[2])
	VUNPCKHPD(r[3], r[2], t[3])
	for i := range c {
		c[i] = YMM()
	}
	VPERM2F128(U8(0x20), t[2], t[0], c[0])
	VPERM2F128(U8(0x20), t[3], t[1], c[1])
	VPERM2F128(U8(0x31), t[2], t[0], c[2])
	VPERM2F128(U8(0x31), t[3], t[1], c[3])
	return c
}

// sumComponents adds four numbers, in the order of the components. each computes number j into y,
// and rounds it.
func sumComponents(each func(j int, y reg.VecVirtual)) reg.VecVirtual {
	s := YMM()
	each(0, s)
	for j := 1; j < 4; j++ {
		y := YMM()
		each(j, y)
		VADDPD(y, s, s)
	}
	return s
}

// writeSlerp writes the kernel for quaternions, with four rows at a time.
//
// With u = th², sin(w·th)/sin th = w·S(w²u)/S(u), where S(v) = sin(√v)/√v. u = acos²(d) is smooth
// down to d = 1. The kernel therefore needs no angle and no branch near 0. Its only roots are those
// of the norms, which are divided out together with the weights.
//
// Products are not fused: terms of the sum must cancel exactly as in the reference. If d is close
// to 0, the last bit of the reference decides the sign of q1, so such rows are left to the
// reference.
func writeSlerp() {
	TEXT("slerpF32", NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc(
		"slerpF32 blends at least four rows of quaternions. Weight 0 copies the left row.",
		"If a norm is zero or not finite, the row becomes NaN and 0 is written to valid.",
		"If a row is left to the reference, 2 is written to valid.",
		"limits becomes nonzero if valid was written.",
	)
	a := Load(Param("a"), GP64())
	row, i, t, p, out, mask := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	seen := GP32()
	XORL(seen, seen)
	XORQ(row, row)
	Label("rows")
	XORQ(i, i)
	MOVQ(row, out)
	IMULQ(memOperand(a, offDstStep), out)
	ADDQ(memOperand(a, offDst), out)

	Label("quat")
	source := func(field, lane int) {
		MOVQ(memOperand(a, field), t)
		MOVLQSX(indexedOperand(t, row, 4, 4*lane), p)
		IMULQ(memOperand(a, offSrcStep), p)
		ADDQ(memOperand(a, offSrc), p)
	}
	load := func(field int) [4]reg.VecVirtual {
		var r [4]reg.VecVirtual
		for lane := range r {
			r[lane] = YMM()
			source(field, lane)
			VCVTPS2PD(indexedOperand(p, i, 4, 0), r[lane])
		}
		return transposeLanes(r)
	}
	// Each register of q0 and q1 holds one component of the left or right quaternions of four rows.
	q0, q1 := load(offLeft), load(offRight)
	square := func(q [4]reg.VecVirtual) reg.VecVirtual {
		return sumComponents(func(j int, y reg.VecVirtual) { VMULPD(q[j], q[j], y) })
	}
	n0, n1 := square(q0), square(q1)
	dot := sumComponents(func(j int, y reg.VecVirtual) { VMULPD(q1[j], q0[j], y) })
	// A row is valid if both squared norms are positive and finite.
	ok, finite := YMM(), YMM()
	VXORPD(ok, ok, ok)
	VCMPPD(U8(0x11), n0, ok, finite) // 0 < n
	VCMPPD(U8(0x11), n1, ok, ok)
	VANDPD(finite, ok, ok)
	VCMPPD(U8(0x11), fourLanes(math.Inf(1)), n0, finite)
	VANDPD(finite, ok, ok)
	VCMPPD(U8(0x11), fourLanes(math.Inf(1)), n1, finite)
	VANDPD(finite, ok, ok)
	VMOVMSKPD(ok, mask.As32())
	// g = 1/(n0·n1), so n1·g is 1/n0 and n0·g is 1/n1.
	VSQRTPD(n0, n0)
	VSQRTPD(n1, n1)
	g := ok
	VMULPD(n1, n0, g)
	one := YMM()
	VMOVUPD(fourLanes(1), one)
	VDIVPD(g, one, g)
	r0, r1 := n1, n0
	VMULPD(g, r0, r0)
	VMULPD(g, r1, r1)
	VMULPD(g, dot, dot)
	// 1/n1 gets the sign of d.
	sign := finite
	VANDPD(fourLanes(math.Copysign(0, -1)), dot, sign)
	VXORPD(sign, r1, r1)
	VXORPD(sign, dot, dot)
	// Rows with d < 2^-44 are left to the reference.
	near := sign
	VCMPPD(U8(0x11), fourLanes(0x1p-44), dot, near)
	again := GP32()
	VMOVMSKPD(near, again)
	// y = 1-d, and u = y·(acos²(1-y)/y).
	y := dot
	VSUBPD(dot, one, y)
	u := polyHalves(acosPoly, y)
	VMULPD(y, u, u)
	w1 := YMM()
	w0 := one
	MOVQ(memOperand(a, offWeight), t)
	VMOVUPD(indexedOperand(t, row, 8, 0), w1)
	VSUBPD(w1, w0, w0)
	// weight multiplies r by w·S(w²u).
	weight := func(w, r reg.VecVirtual) {
		v := YMM()
		VMULPD(w, w, v)
		VMULPD(u, v, v)
		VMULPD(w, r, r)
		VMULPD(evalPoly(sinPoly, v), r, r)
	}
	weight(w0, r0)
	weight(w1, r1)
	// Divide both weights by S(u), and blend.
	s := evalPoly(sinPoly, u)
	VMOVUPD(fourLanes(1), w0)
	VDIVPD(s, w0, s)
	VMULPD(s, r0, r0)
	VMULPD(s, r1, r1)
	for j := range q0 {
		VMULPD(r0, q0[j], q0[j])
		VMULPD(r1, q1[j], q1[j])
		VADDPD(q1[j], q0[j], q0[j])
	}
	r := transposeLanes(q0)
	MOVQ(out, p)
	for lane := range r {
		VCVTPD2PSY(r[lane], r[lane].AsX())
		VMOVUPS(r[lane].AsX(), indexedOperand(p, i, 4, 0))
		if lane < 3 {
			ADDQ(memOperand(a, offDstStep), p)
		}
	}
	// Rows that hit a sample keep its bits. mask: rows that are valid; again: rows left to the
	// reference.
	exact := GP32()
	zero := YMM()
	VXORPD(zero, zero, zero)
	MOVQ(memOperand(a, offWeight), t)
	VCMPPD(U8(0), indexedOperand(t, row, 8, 0), zero, zero)
	VMOVMSKPD(zero, exact)
	ORL(exact, mask.As32())
	ANDL(mask.As32(), again)
	XORL(U8(15), mask.As32())
	ORL(again, mask.As32())
	ORL(exact, mask.As32())
	JZ(LabelRef("valid"))
	bits := XMM()
	to := GP64()
	MOVQ(out, to)
	for lane := range 4 {
		label := fmt.Sprintf("lane%d", lane)
		check := fmt.Sprintf("check%d", lane)
		TESTL(U32(1<<lane), exact)
		JZ(LabelRef(check))
		source(offLeft, lane)
		VMOVUPS(indexedOperand(p, i, 4, 0), bits)
		VMOVUPS(bits, indexedOperand(to, i, 4, 0))
		JMP(LabelRef(label))
		Label(check)
		TESTL(U32(1<<lane), mask.As32())
		JZ(LabelRef(label))
		ORL(mask.As32(), seen)
		MOVQ(memOperand(a, offValid), t)
		MOVL(again, p.As32())
		SHRL(U8(lane), p.As32())
		ANDL(U8(1), p.As32())
		ADDL(p.As32(), p.As32())
		// Keep a 2: the reference decides the validity of the whole row.
		CMPB(indexedOperand(t, row, 1, lane), U8(2))
		JEQ(LabelRef(label))
		MOVB(p.As8(), indexedOperand(t, row, 1, lane))
		Label(label)
		if lane < 3 {
			ADDQ(memOperand(a, offDstStep), to)
		}
	}
	Label("valid")
	ADDQ(U8(4), i)
	CMPQ(i, memOperand(a, offCols))
	JLT(LabelRef("quat"))
	// The last four rows overlap the previous ones.
	MOVQ(memOperand(a, offRows), t)
	SUBQ(U8(4), t)
	CMPQ(row, t)
	JGE(LabelRef("end"))
	ADDQ(U8(4), row)
	CMPQ(row, t)
	CMOVQGT(t, row)
	JMP(LabelRef("rows"))
	Label("end")
	MOVQ(seen.As64(), memOperand(a, offLimits))
	VZEROUPPER()
	RET()
}
