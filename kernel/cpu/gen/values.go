package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// loadRaw reads n elements of one or two bytes into y by the instruction wide, which may also
// convert them. A single element is read through a general register by the instruction one.
func (k *rows) loadRaw(
	n int,
	m Mem,
	y reg.VecVirtual,
	one func(from, to Op),
	wide func(ops ...Op),
) {
	if n > 1 {
		wide(m, registerPart(y, n))
		return
	}
	one(m, k.t.As32())
	VMOVD(k.t.As32(), y.AsX())
}

// loadFloats reads n columns as float32. The first one is column first of the columns that this step
// of the loop computes. p is the address of the row. Values of float32 are copied bit by bit.
func (k *rows) loadFloats(n int, p reg.Register, first int) reg.VecVirtual {
	y := YMM()
	m := indexedOperand(p, k.i, k.src.size, first*k.src.size)
	r := registerPart(y, n)
	switch {
	case k.src == f32 && n == 1:
		VMOVSS(m, y.AsX())
	case k.src == f32:
		VMOVUPS(m, r)
	case k.src == f16:
		k.loadRaw(n, m, y, MOVWLZX, VCVTPH2PS)
		if n == 1 {
			VCVTPH2PS(y.AsX(), y.AsX())
		}
	case k.src == bf16:
		k.loadRaw(n, m, y, MOVWLZX, VPMOVZXWD)
		VPSLLD(U8(16), r, r) // bfloat16 is the high half of a float32
	default:
		k.loadRaw(n, m, y, MOVBLZX, VPMOVZXBD)
		VCVTDQ2PS(r, r)
	}
	return y
}

// writeEpilogue applies the epilogue to n columns of y, the first of which is column first of the
// step.
func (k *rows) writeEpilogue(n int, y reg.VecVirtual, first int) {
	if k.epi == plain {
		return
	}
	r := registerPart(y, n)
	if k.epi == unitNorm {
		VDIVPS(registerPart(k.by255, n), r, r)
	}
	v := YMM()
	a, b := indexedOperand(k.a, k.i, 4, 4*first), indexedOperand(k.b, k.i, 4, 4*first)
	bv := registerPart(v, n)
	if n == 1 {
		VMOVSS(a, v.AsX())
		VSUBPS(bv, r, r)
		VMOVSS(b, v.AsX())
	} else {
		VSUBPS(a, r, r)
		VMOVUPS(b, bv)
	}
	VMULPS(registerPart(k.scale, n), r, r)
	VDIVPS(bv, r, r)
	VSUBPS(registerPart(k.off, n), r, r)
	VCMPPS(U8(4), registerPart(k.zero, n), bv, bv) // b ≠ 0: a constant channel becomes 0
	VANDPS(bv, r, r)
	// VMAXPS and VMINPS return the second operand if it is NaN, or if both are zeros. The value
	// must be the second operand, so that NaN stays NaN.
	VMAXPS(r, registerPart(k.lo, n), r)
	VMINPS(r, registerPart(k.hi, n), r)
}

// storeColumns rounds n columns of y and writes them from column first on. For 16-bit results it
// updates the largest magnitudes.
func (k *rows) storeColumns(n int, y reg.VecVirtual, first int) {
	r := registerPart(y, n)
	m := indexedOperand(k.out, k.i, 4, 4*first)
	switch {
	case k.dst == f32 && n == 1:
		VMOVSS(y.AsX(), m)
		return
	case k.dst == f32 && k.stream && n == 8:
		VMOVNTPS(r, m)
		return
	case k.dst == f32:
		VMOVUPS(r, m)
		return
	case k.dst == f16:
		VCVTPS2PH(U8(0), r, y.AsX())
	default:
		u := YMM()
		k.roundBFloat16(n, y, u)
		if n == 8 {
			VEXTRACTI128(U8(1), y, u.AsX())
		} else {
			u = y
		}
		VPACKUSDW(u.AsX(), y.AsX(), y.AsX())
	}
	v := YMM()
	VPAND(k.magnitude.AsX(), y.AsX(), v.AsX())
	VPMAXUW(v.AsX(), k.most.AsX(), k.most.AsX())
	k.storeHalf(n, y, first)
}

// storeHalf writes n columns of two bytes from column first on.
func (k *rows) storeHalf(n int, y reg.VecVirtual, first int) {
	m := indexedOperand(k.out, k.i, 2, 2*first)
	switch {
	case n == 8 && k.stream:
		VMOVNTDQ(y.AsX(), m)
	case n == 8:
		VMOVDQU(y.AsX(), m)
	case n == 4:
		VMOVQ(y.AsX(), m)
	default:
		VPEXTRW(U8(0), y.AsX(), m)
	}
}

// copyBits copies n columns without conversion.
func (k *rows) copyBits(n, first int) {
	if k.src == f32 {
		k.storeColumns(n, k.loadFloats(n, k.p0, first), first)
		return
	}
	y := YMM()
	wide := func(ops ...Op) { VMOVQ(ops[0], y.AsX()) }
	if n == 8 {
		wide = func(ops ...Op) { VMOVDQU(ops[0], y.AsX()) }
	}
	k.loadRaw(n, indexedOperand(k.p0, k.i, k.src.size, first*k.src.size), y, MOVWLZX, wide)
	k.storeHalf(n, y, first)
}
