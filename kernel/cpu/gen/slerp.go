package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Minimax polynomials in the square of the argument, the highest power first: sin(a)/a on [0, π/2] to 2e-17, atan(x)/x on [0, tan π/8] to 7e-17.
var (
	sinPoly = []float64{0x1.883810fd15ca6p-49, -0x1.ae439bf37aa2bp-41, 0x1.6123ccce4bceep-33, -0x1.ae6454d04a591p-26, 0x1.71de3a528cbc0p-19,
		-0x1.a01a01a0147e6p-13, 0x1.11111111110bcp-7, -0x1.5555555555555p-3, 1}
	atanPoly = []float64{0x1.5a416174e9066p-6, -0x1.642e7ce496477p-5, 0x1.d1fc5e5c44049p-5, -0x1.0ffbceb95936dp-4, 0x1.3afaff0729265p-4,
		-0x1.745ba9f715ab9p-4, 0x1.c71c6488ac72ep-4, -0x1.249249008ec7dp-3, 0x1.9999999934cfcp-3, -0x1.55555555551e3p-2, 1}
)

var constants = map[uint64]Mem{}

// four is a constant in each of four lanes.
func four(x float64) Mem {
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

// poly is the polynomial's value at z.
func poly(coefficients []float64, z reg.VecVirtual) reg.VecVirtual {
	y := YMM()
	VMOVUPD(four(coefficients[0]), y)
	for _, c := range coefficients[1:] {
		VFMADD213PD(four(c), z, y)
	}
	return y
}

// sine is sin(a), and takes a's place.
func sine(a reg.VecVirtual) {
	z := YMM()
	VMULPD(a, a, z)
	VMULPD(poly(sinPoly, z), a, a)
}

func transpose(r [4]reg.VecVirtual) (c [4]reg.VecVirtual) {
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

// sum is the sum of the squares of what each makes, in the order of the components; products are rounded.
func sum(each func(j int, y reg.VecVirtual)) reg.VecVirtual {
	s := YMM()
	each(0, s)
	for j := 1; j < 4; j++ {
		y := YMM()
		each(j, y)
		VADDPD(y, s, s)
	}
	return s
}

// slerp writes the kernel of four rows at a time. Up to the sign and the two lengths it does what the reference does, operation by operation: which way
// round a quaternion goes may hang on the last bit.
func slerp() {
	TEXT("slerpF32", NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc("slerpF32 blends rows of quaternions, four rows or more. Weight 0 copies; a norm that is zero or not finite gives NaN, and 0 in valid.")
	a := Load(Param("a"), GP64())
	row, i, t, p, out, mask := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	XORQ(row, row)
	Label("rows")
	XORQ(i, i)
	MOVQ(row, out)
	IMULQ(mem(a, offDstStep), out)
	ADDQ(mem(a, offDst), out)

	Label("quat")
	source := func(field, lane int) {
		MOVQ(mem(a, field), t)
		MOVLQSX(at(t, row, 4, 4*lane), p)
		IMULQ(mem(a, offSrcStep), p)
		ADDQ(mem(a, offSrc), p)
	}
	load := func(field int) [4]reg.VecVirtual {
		var r [4]reg.VecVirtual
		for lane := range r {
			r[lane] = YMM()
			source(field, lane)
			VCVTPS2PD(at(p, i, 4, 0), r[lane])
		}
		return transpose(r)
	}
	XORL(mask.As32(), mask.As32())
	normed := func(field int) [4]reg.VecVirtual {
		q := load(field)
		n := sum(func(j int, y reg.VecVirtual) { VMULPD(q[j], q[j], y) })
		ok, finite := YMM(), YMM()
		VXORPD(ok, ok, ok)
		VCMPPD(U8(0x11), n, ok, ok) // 0 < n
		VCMPPD(U8(0x11), four(math.Inf(1)), n, finite)
		VANDPD(finite, ok, ok)
		bad := GP32()
		VMOVMSKPD(ok, bad)
		XORL(U8(15), bad)
		ORL(bad, mask.As32())
		VSQRTPD(n, n)
		for j := range q {
			VDIVPD(n, q[j], q[j])
		}
		return q
	}
	q0 := normed(offLeft)
	q1 := normed(offRight)
	dot := sum(func(j int, y reg.VecVirtual) { VMULPD(q1[j], q0[j], y) })
	zero := YMM()
	VXORPD(zero, zero, zero)
	VCMPPD(U8(0x11), zero, dot, dot) // dot < 0
	VANDPD(four(math.Copysign(0, -1)), dot, dot)
	for j := range q1 {
		VXORPD(dot, q1[j], q1[j])
	}
	less := sum(func(j int, y reg.VecVirtual) { VSUBPD(q1[j], q0[j], y); VMULPD(y, y, y) })
	more := sum(func(j int, y reg.VecVirtual) { VADDPD(q1[j], q0[j], y); VMULPD(y, y, y) })
	VSQRTPD(less, less)
	VSQRTPD(more, more)
	// With lengths 2 sin(th/2) and 2 cos(th/2): sin th = less·more/2, and tan(th/4) = less/(2+more) is small enough for one polynomial.
	s := YMM()
	VMULPD(more, less, s)
	VMULPD(four(0.5), s, s)
	VADDPD(four(2), more, more)
	VDIVPD(more, less, less)
	th, z := less, more
	VMULPD(th, th, z)
	VMULPD(poly(atanPoly, z), th, th)
	VMULPD(four(4), th, th)
	tiny := YMM()
	VCMPPD(U8(0x11), four(1e-6), th, tiny)
	w1, w0 := YMM(), YMM()
	MOVQ(mem(a, offWeight), t)
	VMOVUPD(at(t, row, 8, 0), w1)
	VMOVUPD(four(1), w0)
	VSUBPD(w1, w0, w0)
	s0, s1 := YMM(), th
	VMULPD(w0, th, s0)
	VMULPD(w1, th, s1)
	sine(s0)
	sine(s1)
	VBLENDVPD(tiny, w0, s0, s0)
	VBLENDVPD(tiny, w1, s1, s1)
	VBLENDVPD(tiny, four(1), s, s)
	VMOVUPD(four(1), w0)
	VDIVPD(s, w0, s)
	for j := range q0 {
		VMULPD(s0, q0[j], q0[j])
		VMULPD(s1, q1[j], q1[j])
		VADDPD(q1[j], q0[j], q0[j]) // not fused: what cancels has to cancel
		VMULPD(s, q0[j], q0[j])
	}
	r := transpose(q0)
	MOVQ(out, p)
	for lane := range r {
		VCVTPD2PSY(r[lane], r[lane].AsX())
		VMOVUPS(r[lane].AsX(), at(p, i, 4, 0))
		if lane < 3 {
			ADDQ(mem(a, offDstStep), p)
		}
	}
	// Rows that hit a sample are its bits.
	exact := GP32()
	VXORPD(zero, zero, zero)
	MOVQ(mem(a, offWeight), t)
	VCMPPD(U8(0), at(t, row, 8, 0), zero, zero)
	VMOVMSKPD(zero, exact)
	TESTL(exact, exact)
	JZ(LabelRef("blended"))
	bits := XMM()
	to := GP64()
	MOVQ(out, to)
	for lane := range 4 {
		label := fmt.Sprintf("exact%d", lane)
		TESTL(U32(1<<lane), exact)
		JZ(LabelRef(label))
		source(offLeft, lane)
		VMOVUPS(at(p, i, 4, 0), bits)
		VMOVUPS(bits, at(to, i, 4, 0))
		Label(label)
		ADDQ(mem(a, offDstStep), to)
	}
	NOTL(exact)
	ANDL(exact, mask.As32())
	Label("blended")
	TESTL(mask.As32(), mask.As32())
	JZ(LabelRef("valid"))
	MOVQ(mem(a, offValid), t)
	for lane := range 4 {
		label := fmt.Sprintf("valid%d", lane)
		TESTL(U32(1<<lane), mask.As32())
		JZ(LabelRef(label))
		MOVB(U8(0), at(t, row, 1, lane))
		Label(label)
	}
	Label("valid")
	ADDQ(U8(4), i)
	CMPQ(i, mem(a, offCols))
	JLT(LabelRef("quat"))
	// The last four rows overlap those before them.
	MOVQ(mem(a, offRows), t)
	SUBQ(U8(4), t)
	CMPQ(row, t)
	JGE(LabelRef("end"))
	ADDQ(U8(4), row)
	CMPQ(row, t)
	CMOVQGT(t, row)
	JMP(LabelRef("rows"))
	Label("end")
	VZEROUPPER()
	RET()
}
