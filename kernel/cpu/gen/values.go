package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// raw reads n elements as they are, or through wide; one by one through a register.
func (k *rows) raw(n int, m Mem, y reg.VecVirtual, one func(from, to Op), wide func(ops ...Op)) {
	if n > 1 {
		wide(m, width(y, n))
		return
	}
	one(m, k.t.As32())
	VMOVD(k.t.As32(), y.AsX())
}

// load reads n columns as float32; without a blend into the same type, as bits.
func (k *rows) load(n int, p reg.Register, first int) reg.VecVirtual {
	y := YMM()
	m, r := at(p, k.i, k.src.size, first*k.src.size), width(y, n)
	switch {
	case k.src == f32 && n == 1:
		VMOVSS(m, y.AsX())
	case k.src == f32:
		VMOVUPS(m, r)
	case k.src == f16:
		k.raw(n, m, y, MOVWLZX, VCVTPH2PS)
		if n == 1 {
			VCVTPH2PS(y.AsX(), y.AsX())
		}
	case k.src == bf16:
		k.raw(n, m, y, MOVWLZX, VPMOVZXWD)
		VPSLLD(U8(16), r, r)
	default:
		k.raw(n, m, y, MOVBLZX, VPMOVZXBD)
		VCVTDQ2PS(r, r)
	}
	return y
}

// finish is the epilogue.
func (k *rows) finish(n int, y reg.VecVirtual, first int) {
	if k.epi == plain {
		return
	}
	r := width(y, n)
	if k.epi == unitNorm {
		VDIVPS(width(k.by255, n), r, r)
	}
	v := YMM()
	a, b := at(k.a, k.i, 4, 4*first), at(k.b, k.i, 4, 4*first)
	bv := width(v, n)
	if n == 1 {
		VMOVSS(a, v.AsX())
		VSUBPS(bv, r, r)
		VMOVSS(b, v.AsX())
	} else {
		VSUBPS(a, r, r)
		VMOVUPS(b, bv)
	}
	VMULPS(width(k.scale, n), r, r)
	VDIVPS(bv, r, r)
	VSUBPS(width(k.off, n), r, r)
	VCMPPS(U8(4), width(k.zero, n), bv, bv) // b ≠ 0: a constant channel gives 0
	VANDPS(bv, r, r)
	// The value is the second operand, which is the result where it is NaN, and where both are
	// zeros.
	VMAXPS(r, width(k.lo, n), r)
	VMINPS(r, width(k.hi, n), r)
}

func (k *rows) store(n int, y reg.VecVirtual, first int) {
	r, m := width(y, n), at(k.out, k.i, 4, 4*first)
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
		k.round(n, y, u)
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

func (k *rows) storeHalf(n int, y reg.VecVirtual, first int) {
	m := at(k.out, k.i, 2, 2*first)
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

// bits copies n columns as they are.
func (k *rows) bits(n, first int) {
	if k.src == f32 {
		k.store(n, k.load(n, k.p0, first), first)
		return
	}
	y := YMM()
	wide := func(ops ...Op) { VMOVQ(ops[0], y.AsX()) }
	if n == 8 {
		wide = func(ops ...Op) { VMOVDQU(ops[0], y.AsX()) }
	}
	k.raw(n, at(k.p0, k.i, k.src.size, first*k.src.size), y, MOVWLZX, wide)
	k.storeHalf(n, y, first)
}
