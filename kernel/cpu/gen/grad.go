package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// grad writes the backward of the blend: row i of src is added to rows left[i] and right[i] of dst, in the order of i.
func grad() {
	TEXT("scatterF32", NOSPLIT, "func(a *byte)")
	Pragma("noescape")
	Doc("scatterF32 adds rows, weighted, to the rows that they were made of.")
	k := &rows{}
	k.args = Load(Param("a"), GP64())
	k.row, k.cols, k.i, k.t, k.out, k.p0, k.p1 = GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	g := k.out // the row of src
	w, less := YMM(), YMM()
	MOVQ(mem(k.args, offCols), k.cols)
	MOVQ(mem(k.args, offSrc), g)
	one := XMM()
	MOVL(U32(0x3f800000), k.t.As32())
	VMOVD(k.t.As32(), one)
	XORQ(k.row, k.row)
	Label("row")
	CMPQ(k.row, mem(k.args, offRows))
	JGE(LabelRef("end"))
	k.target(offLeft, k.p0)
	MOVQ(mem(k.args, offWeight), k.t)
	VXORPS(w.AsX(), w.AsX(), w.AsX())
	VCVTSD2SS(at(k.t, k.row, 8, 0), w.AsX(), w.AsX())
	VMOVD(w.AsX(), k.t.As32())
	XORQ(k.i, k.i)
	ADDL(k.t.As32(), k.t.As32())
	JZ(LabelRef("copy8"))
	k.target(offRight, k.p1)
	VSUBSS(w.AsX(), one, less.AsX())
	VBROADCASTSS(w.AsX(), w)
	VBROADCASTSS(less.AsX(), less)
	for _, n := range []int{8, 4, 1} {
		k.each("blend", n, func() {
			v, l, r := YMM(), YMM(), YMM()
			loadN(n, at(g, k.i, 4, 0), v)
			loadN(n, at(k.p0, k.i, 4, 0), l)
			VFMADD231PS(width(v, n), width(less, n), width(l, n))
			storeN(n, l, at(k.p0, k.i, 4, 0))
			// After the left one is stored: both may be the same row.
			loadN(n, at(k.p1, k.i, 4, 0), r)
			VFMADD231PS(width(v, n), width(w, n), width(r, n))
			storeN(n, r, at(k.p1, k.i, 4, 0))
		})
	}
	JMP(LabelRef("next"))
	for _, n := range []int{8, 4, 1} {
		k.each("copy", n, func() {
			v, l := YMM(), YMM()
			loadN(n, at(g, k.i, 4, 0), v)
			loadN(n, at(k.p0, k.i, 4, 0), l)
			VADDPS(width(v, n), width(l, n), width(l, n))
			storeN(n, l, at(k.p0, k.i, 4, 0))
		})
	}
	Label("next")
	ADDQ(mem(k.args, offSrcStep), g)
	INCQ(k.row)
	JMP(LabelRef("row"))
	Label("end")
	VZEROUPPER()
	RET()
}

func (k *rows) target(field int, p reg.GPVirtual) {
	MOVQ(mem(k.args, field), k.t)
	MOVLQSX(at(k.t, k.row, 4, 0), p)
	IMULQ(mem(k.args, offDstStep), p)
	ADDQ(mem(k.args, offDst), p)
}

// each repeats body for n columns at a time, as often as they fit.
func (k *rows) each(name string, n int, body func()) {
	head, end := name+string(rune('0'+n)), name+string(rune('0'+n))+"end"
	Label(head)
	LEAQ(mem(k.i, n), k.t)
	CMPQ(k.t, k.cols)
	JG(LabelRef(end))
	body()
	MOVQ(k.t, k.i)
	JMP(LabelRef(head))
	Label(end)
}

func loadN(n int, m Mem, y reg.VecVirtual) {
	if n == 1 {
		VMOVSS(m, y.AsX())
	} else {
		VMOVUPS(m, width(y, n))
	}
}

func storeN(n int, y reg.VecVirtual, m Mem) {
	if n == 1 {
		VMOVSS(y.AsX(), m)
	} else {
		VMOVUPS(width(y, n), m)
	}
}
