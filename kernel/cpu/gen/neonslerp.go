package main

import (
	"fmt"
	"math"
)

// poly is the polynomial at z, of the coefficients from R16 on, which goes on; it takes v and v+1,
// and returns the one with the value.
func (k *neon) poly(coefficients, z, v int) int {
	to := v + 1
	k.op("VLD1R.P 8(R16), [V%d.D2]", v)
	for range coefficients - 1 {
		k.op("VLD1R.P 8(R16), [V%d.D2]", to)
		k.op("VFMLA V%d.D2, V%d.D2, V%d.D2", v, z, to)
		v, to = to, v
	}
	return v
}

// dot is the sum of four products in d, in the order of the components; products are rounded.
func (k *neon) dot(d, n, m int) {
	k.word("dmul", d, n, m)
	for j := 1; j < 4; j++ {
		k.word("dmul", 25, n+j, m+j)
		k.word("dadd", d, d, 25)
	}
}

// slerp is slerp's twin, step by step and so bit by bit, of two rows at a time.
//
// Registers as in kernel, and: R11 to R14 the rows' left and right sources, R15 the second result,
// R16 coefficients, R20 what limits becomes, R21 the first result,
// R22 valid. V0 to V3 and V4 to V7 are the components of both sides, V20 and V21 their norms, then
// their weights, V22 the dot, V23 and V24 what is valid and what is left to the reference, V26 and
// V27 the rows' weights.
func (k *neon) slerp() {
	var tables [3][]float64 // even and odd powers of acos, sin
	for i, c := range acosPoly {
		p := (len(acosPoly) - 1 - i) % 2
		tables[p] = append(tables[p], c)
	}
	tables[2] = sinPoly
	at := 0
	for _, t := range tables {
		for _, c := range t {
			fmt.Fprintf(k, "\nDATA slerpPoly<>+%d(SB)/8, $%#016x", at, math.Float64bits(c))
			at += 8
		}
	}
	fmt.Fprintf(k, "\nGLOBL slerpPoly<>(SB), RODATA|NOPTR, $%d\n", at)
	k.begin("slerpF32")
	k.op("MOVD %d(R0), R22", offValid)
	k.op("MOVD $0, R20")
	for i, x := range []float64{0x1p-44, math.Inf(1), math.Copysign(0, -1), 1} {
		k.op("MOVD $%#016x, R19", math.Float64bits(x))
		k.op("VDUP R19, V%d.D2", 28+i)
	}
	k.label("pair")
	k.op("CBZ R1, end")
	k.op("CMP $1, R1")
	k.op("BNE two")
	// The last two rows overlap those before them.
	for _, back := range []string{"$4, R3", "$4, R4", "$8, R5", "$1, R22", "R8, R2", "$-1, R1"} {
		k.op("SUB %s", back)
	}
	k.label("two")
	for i, index := range []string{"R3", "R3", "R4", "R4"} {
		k.row(index, fmt.Sprint("R", 11+i))
	}
	k.op("VLD1.P 16(R5), [V27.D2]")
	k.word("dsub", 26, 31, 27)
	k.op("MOVD R2, R21")
	k.op("ADD R8, R2, R15")
	k.op("MOVD R9, R10")
	k.label("quat")
	for side := range 2 {
		for lane := range 2 {
			k.op("VLD1.P 16(R%d), [V%d.S4]", 11+2*side+lane, 16+2*side+lane)
			k.word("dcvtl", 20+lane, 16+2*side+lane, 0)
			k.word("dcvtl2", 22+lane, 16+2*side+lane, 0)
		}
		for j := range 4 {
			k.op("VZIP%d V%d.D2, V%d.D2, V%d.D2", 1+j%2, 21+j&2, 20+j&2, 4*side+j)
		}
	}
	k.dot(20, 0, 0)
	k.dot(21, 4, 4)
	k.dot(22, 0, 4)
	k.word("dpos", 23, 20, 0)
	for _, v := range []int{20, 21} {
		k.word("dcmgt", 25, 29, v)
		k.op("VAND V25.B16, V23.B16, V23.B16")
		if v == 20 {
			k.word("dpos", 25, 21, 0)
			k.op("VAND V25.B16, V23.B16, V23.B16")
		}
	}
	k.word("dsqrt", 20, 20, 0)
	k.word("dsqrt", 21, 21, 0)
	k.word("dmul", 24, 20, 21)
	k.word("ddiv", 24, 31, 24)
	for v := 20; v < 23; v++ {
		k.word("dmul", v, v, 24)
	}
	k.op("VAND V30.B16, V22.B16, V25.B16")
	k.op("VEOR V25.B16, V20.B16, V20.B16")
	k.op("VEOR V25.B16, V22.B16, V22.B16")
	k.word("dcmgt", 24, 28, 22)
	k.word("dsub", 25, 31, 22)
	k.word("dmul", 22, 25, 25)
	k.op("MOVD $slerpPoly<>(SB), R16")
	even := k.poly(len(tables[0]), 22, 8)
	odd := k.poly(len(tables[1]), 22, 10)
	k.op("VFMLA V%d.D2, V25.D2, V%d.D2", odd, even)
	k.word("dmul", 22, even, 25)
	// The weights of the left side, whose norm's inverse is in V21, and of the right.
	for _, v := range [][2]int{{26, 21}, {27, 20}} {
		k.word("dmul", 14, v[0], v[0])
		k.word("dmul", 14, 14, 22)
		k.word("dmul", v[1], v[1], v[0])
		s := k.poly(len(sinPoly), 14, 8)
		k.word("dmul", v[1], v[1], s)
		k.op("SUB $%d, R16", 8*len(sinPoly))
	}
	s := k.poly(len(sinPoly), 22, 8)
	k.word("ddiv", s, 31, s)
	k.word("dmul", 21, 21, s)
	k.word("dmul", 20, 20, s)
	for j := range 4 {
		k.word("dmul", j, j, 21)
		k.word("dmul", 4+j, 4+j, 20)
		k.word("dadd", j, j, 4+j)
	}
	for lane, result := range []string{"R21", "R15"} {
		k.op("VZIP%d V1.D2, V0.D2, V8.D2", 1+lane)
		k.op("VZIP%d V3.D2, V2.D2, V9.D2", 1+lane)
		k.word("dcvtn", 10, 8, 0)
		k.word("dcvtn2", 10, 9, 0)
		k.op("VMOV V27.D[%d], R19", lane)
		k.op("LSL $1, R19")
		k.op("CBNZ R19, blend%d", lane)
		k.op("VMOV V%d.B16, V10.B16", 16+lane) // a sample that is hit is its bits
		k.op("B store%d", lane)
		k.label(fmt.Sprint("blend", lane))
		k.op("VMOV V23.D[%d], R17", lane)
		k.op("VMOV V24.D[%d], R19", lane)
		k.op("AND R17, R19")
		k.op("CBNZ R19, note%d", lane)
		k.op("CBNZ R17, store%d", lane)
		k.label(fmt.Sprint("note", lane))
		k.op("MOVD $1, R20")
		k.op("MOVBU %d(R22), R17", lane)
		k.op("CMP $2, R17") // 2 stays: the reference decides the validity of the whole row
		k.op("BEQ store%d", lane)
		k.op("AND $2, R19")
		k.op("MOVB R19, %d(R22)", lane)
		k.label(fmt.Sprint("store", lane))
		k.op("VST1.P [V10.S4], 16(%s)", result)
	}
	k.op("SUBS $4, R10")
	k.op("BGT quat")
	k.op("ADD R8<<1, R2")
	k.op("ADD $2, R22")
	k.op("SUB $2, R1")
	k.op("B pair")
	k.label("end")
	k.op("MOVD R20, %d(R0)", offLimits)
	k.op("RET")
}
