package main

import (
	"fmt"
	"math"
)

// evalPoly evaluates a polynomial at z. It reads the coefficients from R16 and advances R16. It
// uses registers v and v+1, and returns the one with the value.
func (k *neon) evalPoly(coefficients, z, v int) int {
	to := v + 1
	k.emitOp("VLD1R.P 8(R16), [V%d.D2]", v)
	for range coefficients - 1 {
		k.emitOp("VLD1R.P 8(R16), [V%d.D2]", to)
		k.emitOp("VFMLA V%d.D2, V%d.D2, V%d.D2", v, z, to)
		v, to = to, v
	}
	return v
}

// dotProduct writes the sum of four products to d, in the order of the components. Each product is
// rounded.
func (k *neon) dotProduct(d, n, m int) {
	const scratch = 25 // V25
	k.emitWord("dmul", d, n, m)
	for j := 1; j < 4; j++ {
		k.emitWord("dmul", scratch, n+j, m+j)
		k.emitWord("dadd", d, d, scratch)
	}
}

// writeSlerp writes the same steps as slerpF32 of amd64, so the results are equal bit by bit. It
// handles two rows at a time.
//
// Registers in addition to those of writeKernel:
//
//   - R11 to R14: left and right sources of the two rows.
//   - R15: second result. R16: coefficients. R20: new value of limits.
//   - R21: first result. R22: valid.
//   - V0 to V3, V4 to V7: components of the left and right quaternions.
//   - V20, V21: their norms, later their weights. V22: dot product.
//   - V23: rows that are valid. V24: rows that are left to the reference.
//   - V26, V27: weights of the rows.
func (k *neon) writeSlerp() {
	var tables [3][]float64 // even and odd powers of acos, then sin
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
	k.beginKernel("slerpF32")
	k.emitOp("MOVD %d(R0), R22", offValid)
	k.emitOp("MOVD $0, R20")
	// Constants: V28 is 2^-44, V29 infinity, V30 the sign bit, V31 one.
	for i, x := range []float64{0x1p-44, math.Inf(1), math.Copysign(0, -1), 1} {
		k.emitOp("MOVD $%#016x, R19", math.Float64bits(x))
		k.emitOp("VDUP R19, V%d.D2", 28+i)
	}
	k.emitLabel("pair")
	k.emitOp("CBZ R1, end")
	k.emitOp("CMP $1, R1")
	k.emitOp("BNE two")
	// The last two rows overlap the previous ones.
	for _, back := range []string{"$4, R3", "$4, R4", "$8, R5", "$1, R22", "R8, R2", "$-1, R1"} {
		k.emitOp("SUB %s", back)
	}
	k.emitLabel("two")
	for i, index := range []string{"R3", "R3", "R4", "R4"} {
		k.loadRowAddress(index, fmt.Sprint("R", 11+i))
	}
	k.emitOp("VLD1.P 16(R5), [V27.D2]")
	k.emitWord("dsub", 26, 31, 27)
	k.emitOp("MOVD R2, R21")
	k.emitOp("ADD R8, R2, R15")
	k.emitOp("MOVD R9, R10")
	k.emitLabel("quat")
	// Load four components of both rows on each side, convert them to float64, and transpose them:
	// each register then holds one component of both rows.
	for side := range 2 {
		for lane := range 2 {
			k.emitOp("VLD1.P 16(R%d), [V%d.S4]", 11+2*side+lane, 16+2*side+lane)
			k.emitWord("dcvtl", 20+lane, 16+2*side+lane, 0)
			k.emitWord("dcvtl2", 22+lane, 16+2*side+lane, 0)
		}
		for j := range 4 {
			k.emitOp("VZIP%d V%d.D2, V%d.D2, V%d.D2", 1+j%2, 21+j&2, 20+j&2, 4*side+j)
		}
	}
	// Squared norms and dot product. A row is valid if both norms are positive and finite.
	k.dotProduct(20, 0, 0)
	k.dotProduct(21, 4, 4)
	k.dotProduct(22, 0, 4)
	k.emitWord("dpos", 23, 20, 0)
	for _, v := range []int{20, 21} {
		k.emitWord("dcmgt", 25, 29, v)
		k.emitOp("VAND V25.B16, V23.B16, V23.B16")
		if v == 20 {
			k.emitWord("dpos", 25, 21, 0)
			k.emitOp("VAND V25.B16, V23.B16, V23.B16")
		}
	}
	// V24 = 1/(n0·n1). V20 becomes 1/n1, V21 becomes 1/n0, and V22 the dot product of unit
	// quaternions.
	k.emitWord("dsqrt", 20, 20, 0)
	k.emitWord("dsqrt", 21, 21, 0)
	k.emitWord("dmul", 24, 20, 21)
	k.emitWord("ddiv", 24, 31, 24)
	for v := 20; v < 23; v++ {
		k.emitWord("dmul", v, v, 24)
	}
	// Move the sign of the dot product d to 1/n1, and make d positive. Rows with d < 2^-44 are left to
	// the reference.
	k.emitOp("VAND V30.B16, V22.B16, V25.B16")
	k.emitOp("VEOR V25.B16, V20.B16, V20.B16")
	k.emitOp("VEOR V25.B16, V22.B16, V22.B16")
	k.emitWord("dcmgt", 24, 28, 22)
	k.emitWord("dsub", 25, 31, 22)
	k.emitWord("dmul", 22, 25, 25)
	// V22 = u = acos²(d), by the polynomial of y = 1-d with separate even and odd powers.
	k.emitOp("MOVD $slerpPoly<>(SB), R16")
	even := k.evalPoly(len(tables[0]), 22, 8)
	odd := k.evalPoly(len(tables[1]), 22, 10)
	k.emitOp("VFMLA V%d.D2, V25.D2, V%d.D2", odd, even)
	k.emitWord("dmul", 22, even, 25)
	// The weights of the left side, whose inverse norm is in V21, and of the right side.
	for _, v := range [][2]int{{26, 21}, {27, 20}} {
		k.emitWord("dmul", 14, v[0], v[0])
		k.emitWord("dmul", 14, 14, 22)
		k.emitWord("dmul", v[1], v[1], v[0])
		s := k.evalPoly(len(sinPoly), 14, 8)
		k.emitWord("dmul", v[1], v[1], s)
		k.emitOp("SUB $%d, R16", 8*len(sinPoly))
	}
	// Divide both weights by S(u), and blend.
	s := k.evalPoly(len(sinPoly), 22, 8)
	k.emitWord("ddiv", s, 31, s)
	k.emitWord("dmul", 21, 21, s)
	k.emitWord("dmul", 20, 20, s)
	for j := range 4 {
		k.emitWord("dmul", j, j, 21)
		k.emitWord("dmul", 4+j, 4+j, 20)
		k.emitWord("dadd", j, j, 4+j)
	}
	// Write each row: the bits of a sample that is hit, or the blend. The array of
	// flags (R22) gets 0 for a row that is invalid, and 2 for one that is left to the reference.
	for lane, result := range []string{"R21", "R15"} {
		k.emitOp("VZIP%d V1.D2, V0.D2, V8.D2", 1+lane)
		k.emitOp("VZIP%d V3.D2, V2.D2, V9.D2", 1+lane)
		k.emitWord("dcvtn", 10, 8, 0)
		k.emitWord("dcvtn2", 10, 9, 0)
		k.emitOp("VMOV V27.D[%d], R19", lane)
		k.emitOp("LSL $1, R19")
		k.emitOp("CBNZ R19, blend%d", lane)
		k.emitOp("VMOV V%d.B16, V10.B16", 16+lane) // a sample that is hit keeps its bits
		k.emitOp("B store%d", lane)
		k.emitLabel(fmt.Sprint("blend", lane))
		k.emitOp("VMOV V23.D[%d], R17", lane)
		k.emitOp("VMOV V24.D[%d], R19", lane)
		k.emitOp("AND R17, R19")
		k.emitOp("CBNZ R19, note%d", lane)
		k.emitOp("CBNZ R17, store%d", lane)
		k.emitLabel(fmt.Sprint("note", lane))
		k.emitOp("MOVD $1, R20")
		k.emitOp("MOVBU %d(R22), R17", lane)
		k.emitOp("CMP $2, R17") // keep a 2: the reference decides the validity of the whole row
		k.emitOp("BEQ store%d", lane)
		k.emitOp("AND $2, R19")
		k.emitOp("MOVB R19, %d(R22)", lane)
		k.emitLabel(fmt.Sprint("store", lane))
		k.emitOp("VST1.P [V10.S4], 16(%s)", result)
	}
	k.emitOp("SUBS $4, R10")
	k.emitOp("BGT quat")
	k.emitOp("ADD R8<<1, R2")
	k.emitOp("ADD $2, R22")
	k.emitOp("SUB $2, R1")
	k.emitOp("B pair")
	k.emitLabel("end")
	k.emitOp("MOVD R20, %d(R0)", offLimits)
	k.emitOp("RET")
}
