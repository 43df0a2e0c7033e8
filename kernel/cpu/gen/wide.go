package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lerp64 writes the kernel that blends rows of float64, into float64 or, rounded once, into float32.
func lerp64(narrow bool) {
	name, size := "lerpF64F64", 8
	if narrow {
		name, size = "lerpF64F32", 4
	}
	TEXT(name, NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc(name + " blends rows of float64.")
	k := &rows{}
	k.args = Load(Param("a"), GP64())
	k.row, k.cols, k.i, k.t, k.out, k.p0, k.p1 = GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	k.w = YMM()
	MOVQ(mem(k.args, offCols), k.cols)
	MOVQ(mem(k.args, offDst), k.out)
	XORQ(k.row, k.row)
	Label("row")
	CMPQ(k.row, mem(k.args, offRows))
	JGE(LabelRef("end"))
	k.source(offLeft, k.p0)
	k.fetch()
	MOVQ(mem(k.args, offWeight), k.t)
	MOVQ(at(k.t, k.row, 8, 0), k.t)
	VMOVQ(k.t, k.w.AsX())
	ADDQ(k.t, k.t)
	JZ(LabelRef("left"))
	k.source(offRight, k.p1)
	VBROADCASTSD(k.w.AsX(), k.w)
	k.columns64("blend", size, true)
	Label("left")
	k.columns64("left", size, false)
	Label("next")
	ADDQ(mem(k.args, offDstStep), k.out)
	INCQ(k.row)
	JMP(LabelRef("row"))
	Label("end")
	VZEROUPPER()
	RET()
}

func (k *rows) columns64(name string, size int, blend bool) {
	l := func(s string) string { return name + s }
	XORQ(k.i, k.i)
	CMPQ(k.cols, U8(4))
	JL(LabelRef(l("Small")))
	Label(l("Four"))
	LEAQ(mem(k.i, 16), k.t)
	CMPQ(k.t, k.cols)
	JG(LabelRef(l("One")))
	for j := range 4 {
		k.step64(4, 4*j, size, blend)
	}
	MOVQ(k.t, k.i)
	JMP(LabelRef(l("Four")))
	Label(l("One"))
	LEAQ(mem(k.i, 4), k.t)
	CMPQ(k.t, k.cols)
	JG(LabelRef(l("Rest")))
	k.step64(4, 0, size, blend)
	MOVQ(k.t, k.i)
	JMP(LabelRef(l("One")))
	Label(l("Rest"))
	CMPQ(k.i, k.cols)
	JE(LabelRef("next"))
	LEAQ(mem(k.cols, -4), k.i)
	k.step64(4, 0, size, blend)
	JMP(LabelRef("next"))
	Label(l("Small"))
	CMPQ(k.i, k.cols)
	JGE(LabelRef("next"))
	k.step64(1, 0, size, blend)
	INCQ(k.i)
	JMP(LabelRef(l("Small")))
}

func (k *rows) step64(n, first, size int, blend bool) {
	load := func(p reg.Register) reg.VecVirtual {
		y := YMM()
		if n == 1 {
			VMOVSD(at(p, k.i, 8, 8*first), y.AsX())
		} else {
			VMOVUPD(at(p, k.i, 8, 8*first), y)
		}
		return y
	}
	full := func(v reg.VecVirtual) reg.Register {
		if n == 1 {
			return v.AsX()
		}
		return v
	}
	v := load(k.p0)
	if blend {
		d := load(k.p1)
		VSUBPD(full(v), full(d), full(d))
		VFMADD213PD(full(v), full(k.w), full(d))
		v = d
	}
	m := at(k.out, k.i, size, size*first)
	switch {
	case size == 4 && n == 1:
		VCVTSD2SS(v.AsX(), v.AsX(), v.AsX())
		VMOVSS(v.AsX(), m)
	case size == 4:
		VCVTPD2PSY(v, v.AsX())
		VMOVUPS(v.AsX(), m)
	case n == 1:
		VMOVSD(v.AsX(), m)
	default:
		VMOVUPD(v, m)
	}
}

// move writes the kernel that copies rows of bytes: previous, next, nearest, and every exact hit, of any type.
func move() {
	TEXT("moveRows", NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc("moveRows copies rows; cols counts bytes.")
	k := &rows{}
	k.args = Load(Param("a"), GP64())
	k.row, k.cols, k.i, k.t, k.out, k.p0 = GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(mem(k.args, offCols), k.cols)
	MOVQ(mem(k.args, offDst), k.out)
	XORQ(k.row, k.row)
	y, z := YMM(), YMM()
	pair := func(n int) {
		load, store := VMOVDQU, VMOVDQU
		a, b := reg.Register(y), reg.Register(z)
		switch n {
		case 16:
			a, b = y.AsX(), z.AsX()
		case 8:
			load, store = VMOVQ, VMOVQ
			a, b = y.AsX(), z.AsX()
		case 4:
			load, store = VMOVD, VMOVD
			a, b = y.AsX(), z.AsX()
		}
		load(mem(k.p0, 0), a)
		load(at(k.p0, k.cols, 1, -n), b)
		store(a, mem(k.out, 0))
		store(b, at(k.out, k.cols, 1, -n))
		JMP(LabelRef("next"))
	}
	Label("row")
	CMPQ(k.row, mem(k.args, offRows))
	JGE(LabelRef("end"))
	k.source(offLeft, k.p0)
	k.fetch()
	CMPQ(k.cols, U8(32))
	JG(LabelRef("long"))
	CMPQ(k.cols, U8(16))
	JGE(LabelRef("pair16"))
	CMPQ(k.cols, U8(8))
	JGE(LabelRef("pair8"))
	CMPQ(k.cols, U8(4))
	JGE(LabelRef("pair4"))
	XORQ(k.i, k.i)
	Label("byte")
	CMPQ(k.i, k.cols)
	JGE(LabelRef("next"))
	MOVB(at(k.p0, k.i, 1, 0), k.t.As8())
	MOVB(k.t.As8(), at(k.out, k.i, 1, 0))
	INCQ(k.i)
	JMP(LabelRef("byte"))
	Label("pair16")
	pair(16)
	Label("pair8")
	pair(8)
	Label("pair4")
	pair(4)
	Label("long")
	XORQ(k.i, k.i)
	Label("four")
	LEAQ(mem(k.i, 128), k.t)
	CMPQ(k.t, k.cols)
	JG(LabelRef("one"))
	var v [4]reg.VecVirtual
	for j := range v {
		v[j] = YMM()
		VMOVDQU(at(k.p0, k.i, 1, 32*j), v[j])
	}
	for j := range v {
		VMOVDQU(v[j], at(k.out, k.i, 1, 32*j))
	}
	MOVQ(k.t, k.i)
	JMP(LabelRef("four"))
	Label("one")
	LEAQ(mem(k.i, 32), k.t)
	CMPQ(k.t, k.cols)
	JG(LabelRef("rest"))
	VMOVDQU(at(k.p0, k.i, 1, 0), y)
	VMOVDQU(y, at(k.out, k.i, 1, 0))
	MOVQ(k.t, k.i)
	JMP(LabelRef("one"))
	Label("rest")
	VMOVDQU(at(k.p0, k.cols, 1, -32), y)
	VMOVDQU(y, at(k.out, k.cols, 1, -32))
	Label("next")
	ADDQ(mem(k.args, offDstStep), k.out)
	INCQ(k.row)
	JMP(LabelRef("row"))
	Label("end")
	VZEROUPPER()
	RET()
}
