package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// load reads n columns as float32; without a blend into the same type, as bits.
func (k *rows) load(n int, p reg.Register, first int) reg.VecVirtual {
	y := YMM()
	m := at(p, k.i, k.src.size, first*k.src.size)
	r := width(y, n)
	switch k.src {
	case f32:
		if n == 1 {
			VMOVSS(m, y.AsX())
		} else {
			VMOVUPS(m, r)
		}
	case f16:
		if n == 1 {
			MOVWLZX(m, k.t.As32())
			VMOVD(k.t.As32(), y.AsX())
			VCVTPH2PS(y.AsX(), y.AsX())
		} else {
			VCVTPH2PS(m, r)
		}
	case bf16:
		if n == 1 {
			MOVWLZX(m, k.t.As32())
			VMOVD(k.t.As32(), y.AsX())
		} else {
			VPMOVZXWD(m, r)
		}
		VPSLLD(U8(16), r, r)
	case u8:
		if n == 1 {
			MOVBLZX(m, k.t.As32())
			VMOVD(k.t.As32(), y.AsX())
		} else {
			VPMOVZXBD(m, r)
		}
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
	// The value is the second operand, which is the result where it is NaN, and where both are zeros.
	VMAXPS(r, width(k.lo, n), r)
	VMINPS(r, width(k.hi, n), r)
}

func (k *rows) store(n int, y reg.VecVirtual, first int) {
	r := width(y, n)
	switch k.dst {
	case f32:
		m := at(k.out, k.i, 4, 4*first)
		if n == 1 {
			VMOVSS(y.AsX(), m)
		} else {
			if k.stream && n == 8 {
				VMOVNTPS(r, m)
			} else {
				VMOVUPS(r, m)
			}
		}
		return
	case f16:
		VCVTPS2PH(U8(0), r, y.AsX())
	case bf16:
		u := YMM()
		k.round(n, y, u)
		if n == 8 {
			VEXTRACTI128(U8(1), y, u.AsX())
		} else {
			u = y
		}
		VPACKUSDW(u.AsX(), y.AsX(), y.AsX())
	}
	m := YMM()
	VPAND(k.magnitude.AsX(), y.AsX(), m.AsX())
	VPMAXUW(m.AsX(), k.most.AsX(), k.most.AsX())
	k.storeHalf(n, y, first)
}

func (k *rows) storeHalf(n int, y reg.VecVirtual, first int) {
	m := at(k.out, k.i, 2, 2*first)
	switch n {
	case 8:
		if k.stream {
			VMOVNTDQ(y.AsX(), m)
		} else {
			VMOVDQU(y.AsX(), m)
		}
	case 4:
		VMOVQ(y.AsX(), m)
	default:
		VPEXTRW(U8(0), y.AsX(), m)
	}
}

// bits copies n columns as they are.
func (k *rows) bits(n, first int) {
	y := YMM()
	m := at(k.p0, k.i, k.src.size, first*k.src.size)
	if k.src == f32 {
		if n == 1 {
			VMOVSS(m, y.AsX())
		} else {
			VMOVUPS(m, width(y, n))
		}
		k.store(n, y, first)
		return
	}
	switch n {
	case 8:
		VMOVDQU(m, y.AsX())
	case 4:
		VMOVQ(m, y.AsX())
	default:
		MOVWLZX(m, k.t.As32())
		VMOVD(k.t.As32(), y.AsX())
	}
	k.storeHalf(n, y, first)
}
