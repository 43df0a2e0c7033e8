package main

import (
	"fmt"
	"os"
	"strings"
)

// This file writes the kernels for arm64 that blend rows. avo supports only x86-64, so they are
// written as text.
//
// Registers of a kernel:
//
//  - R1: number of rows left. R2: result. R3, R4: row indices. R5: weights. R6: source.
//  - R7, R8: distances between rows of the source and of the result. R9: number of columns.
//  - V21 and up: constants of all steps.
//
// Registers of a row:
//
//  - R10: number of columns left. R11, R12: sources. R13: result.
//  - R14, R15: the two numbers of a normalization.
//  - V0, V1: values of eight columns. V2 to V7, V16, V17: scratch of a step.

// words holds the encodings of instructions that Go's assembler cannot name. They work on four
// float32 in a register. The operands are the result, the first operand and the second operand.
var words = map[string]uint32{
	"fsub": 0x4ea0d400, "fmul": 0x6e20dc00, "fdiv": 0x6e20fc00,
	"fcmgt": 0x6ea0e400, "fcmeq": 0x4e20e400, "iszero": 0x4ea0d800, "bic": 0x4e601c00,
	// two float64
	"dadd": 0x4e60d400, "dsub": 0x4ee0d400, "dmul": 0x6e60dc00, "ddiv": 0x6e60fc00,
	"dsqrt": 0x6ee1f800, "dcmgt": 0x6ee0e400, "dpos": 0x4ee0c800,
	"dcvtl": 0x0e617800, "dcvtl2": 0x4e617800, "dcvtn": 0x0e616800, "dcvtn2": 0x4e616800,

	// conversions and shifts
	"ucvtf": 0x6e21d800, "fcvtl": 0x0e217800, "fcvtl2": 0x4e217800, "fcvtn": 0x0e216800,
	"fcvtn2": 0x4e216800, "shll": 0x2e613800, "shll2": 0x6e613800,
}

// neon generates one kernel.
type neon struct {
	*strings.Builder
	src, dst kind
	epi      epilogue
}

// emitOp writes an instruction.
func (k *neon) emitOp(format string, args ...any) { fmt.Fprintf(k, "\t"+format+"\n", args...) }

// emitLabel writes a label.
func (k *neon) emitLabel(name string) { fmt.Fprintf(k, "\n%s:\n", name) }

// emitWord writes an instruction of words, for the v registers with the given numbers.
func (k *neon) emitWord(name string, d, n, m int) {
	k.emitOp("WORD $%#08x // %s v%d, v%d, v%d", words[name]|uint32(m<<16|n<<5|d), name, d, n, m)
}

// laneList returns the registers of n columns, starting at v.
func laneList(n, v int) string {
	if n == 8 {
		return fmt.Sprintf("[V%d.S4, V%d.S4]", v, v+1)
	}
	return fmt.Sprintf("[V%d.S4]", v)
}

// loadFloat32 reads n float32 from the address in r into v and the next register, and advances r.
func (k *neon) loadFloat32(n int, r string, v int) {
	if n == 1 {
		k.emitOp("FMOVS.P 4(%s), F%d", r, v)
		return
	}
	k.emitOp("VLD1.P %d(%s), %s", 4*n, r, laneList(n, v))
}

// loadRaw reads n elements of one or two bytes into v without conversion, and advances r.
func (k *neon) loadRaw(n, size int, r string, v int) {
	switch {
	case n*size >= 8:
		k.emitOp("VLD1.P %d(%s), [V%d.B%d]", n*size, r, v, n*size)
		return
	case n*size == 4:
		k.emitOp("MOVWU.P 4(%s), R19", r)
	case size == 2:
		k.emitOp("MOVHU.P 2(%s), R19", r)
	default:
		k.emitOp("MOVBU.P 1(%s), R19", r)
	}
	k.emitOp("FMOVS R19, F%d", v)
}

// loadFloats reads n columns as float32 into v; eight columns also use the next register.
func (k *neon) loadFloats(n int, r string, v int) {
	if k.src == f32 {
		k.loadFloat32(n, r, v)
		return
	}
	k.loadRaw(n, k.src.size, r, 16)
	switch k.src {
	case f16:
		k.emitWord("fcvtl", v, 16, 0)
		if n == 8 {
			k.emitWord("fcvtl2", v+1, 16, 0)
		}
	case bf16:
		k.emitWord("shll", v, 16, 0)
		if n == 8 {
			k.emitWord("shll2", v+1, 16, 0)
		}
	default:
		k.emitOp("VUXTL V16.B8, V16.H8")
		k.emitOp("VUXTL V16.H4, V%d.S4", v)
		k.emitWord("ucvtf", v, v, 0)
		if n == 8 {
			k.emitOp("VUXTL2 V16.H8, V%d.S4", v+1)
			k.emitWord("ucvtf", v+1, v+1, 0)
		}
	}
}

// writeEpilogue writes the epilogue for n columns.
func (k *neon) writeEpilogue(n int) {
	if k.epi == plain {
		return
	}
	k.loadFloat32(n, "R14", 4)
	k.loadFloat32(n, "R15", 6)
	for v := range 1 + n/8 {
		if k.epi == unitNorm {
			k.emitWord("fdiv", v, v, 21)
		}
		k.emitWord("fsub", v, v, 4+v)
		k.emitWord("fmul", v, v, 25)
		k.emitWord("fdiv", v, v, 6+v)
		k.emitWord("fsub", v, v, 24)
		k.emitWord("iszero", 16, 6+v, 0) // a constant channel becomes 0
		k.emitWord("bic", v, v, 16)
		// NaN values stay, and so does the sign of a zero that equals a bound.
		k.emitWord("fcmgt", 16, 23, v)
		k.emitOp("VBIT V16.B16, V23.B16, V%d.B16", v)
		k.emitWord("fcmgt", 16, v, 22)
		k.emitOp("VBIT V16.B16, V22.B16, V%d.B16", v)
	}
}

// roundBFloat16 rounds float32 to bfloat16, in the low halves: it adds 0x7fff and the lowest bit
// that is kept, and shifts. It tests for NaN first, because rounding would turn some NaNs into
// infinity.
func (k *neon) roundBFloat16(v int) {
	k.emitWord("fcmeq", 16, v, v)
	k.emitOp("VUSHR $16, V%d.S4, V17.S4", v)
	k.emitOp("VAND V27.B16, V17.B16, V17.B16")
	k.emitOp("VADD V28.S4, V17.S4, V17.S4")
	k.emitOp("VADD V17.S4, V%d.S4, V%d.S4", v, v)
	k.emitOp("VUSHR $16, V%d.S4, V%d.S4", v, v)
	k.emitOp("VBIF V16.B16, V26.B16, V%d.B16", v)
}

// storeColumns rounds n columns of V0 and V1, writes them and advances R13. For 16-bit results it
// updates the largest magnitudes in V29.
func (k *neon) storeColumns(n int) {
	switch {
	case k.dst == f32 && n == 1:
		k.emitOp("FMOVS.P F0, 4(R13)")
		return
	case k.dst == f32:
		k.emitOp("VST1.P %s, %d(R13)", laneList(n, 0), 4*n)
		return
	case k.dst == f16:
		k.emitWord("fcvtn", 2, 0, 0)
		if n == 8 {
			k.emitWord("fcvtn2", 2, 1, 0)
		}
	default:
		k.roundBFloat16(0)
		if n == 8 {
			k.roundBFloat16(1)
		}
		k.emitOp("VUZP1 V%d.H8, V0.H8, V2.H8", n/8)
	}
	k.emitOp("VAND V30.B16, V2.B16, V3.B16")
	k.emitOp("VUMAX V3.H8, V29.H8, V29.H8")
	k.storeHalves(n)
}

// storeHalves writes n elements of two bytes.
func (k *neon) storeHalves(n int) {
	if n == 1 {
		k.emitOp("VMOV V2.H[0], R19")
		k.emitOp("MOVH.P R19, 2(R13)")
		return
	}
	k.emitOp("VST1.P [V2.B%d], %d(R13)", 2*n, 2*n)
}

// stepColumns handles n columns.
func (k *neon) stepColumns(n int, blend bool) {
	switch {
	case !blend && k.src == k.dst && k.epi == plain && k.src != f32:
		k.loadRaw(n, 2, "R11", 2)
		k.storeHalves(n)
		return
	case blend:
		k.loadFloats(n, "R11", 0)
		k.loadFloats(n, "R12", 2)
		for v := range 1 + n/8 {
			k.emitWord("fsub", 2+v, 2+v, v)
			k.emitOp("VFMLA V%d.S4, V31.S4, V%d.S4", 2+v, v)
		}
	default:
		k.loadFloats(n, "R11", 0)
	}
	k.writeEpilogue(n)
	k.storeColumns(n)
}

// stepBack moves the addresses back so that the next n columns are the last of the row.
func (k *neon) stepBack(n int, blend bool) {
	shift := map[int]string{1: "R19", 2: "R19<<1", 4: "R19<<2"}
	k.emitOp("MOVD $%d, R19", n)
	k.emitOp("SUB R10, R19, R19")
	k.emitOp("SUB %s, R11, R11", shift[k.src.size])
	if blend {
		k.emitOp("SUB %s, R12, R12", shift[k.src.size])
	}
	k.emitOp("SUB %s, R13, R13", shift[k.dst.size])
	if k.epi != plain {
		k.emitOp("SUB R19<<2, R14, R14")
		k.emitOp("SUB R19<<2, R15, R15")
	}
}

// writeColumns writes the loops over one row. They handle eight columns at a time. The last eight
// overlap the previous ones, so that nothing beyond the row is touched.
func (k *neon) writeColumns(name string, blend bool) {
	k.emitOp("MOVD R9, R10")
	k.emitOp("MOVD R2, R13")
	if k.epi != plain {
		k.emitOp("MOVD %d(R0), R14", offA)
		k.emitOp("MOVD %d(R0), R15", offB)
	}
	// emitSteps handles n columns at a time. If the row has fewer, it jumps to the label less.
	emitSteps := func(n int, less string) {
		k.emitOp("CMP $%d, R10", n)
		k.emitOp("BLT %s%s", name, less)
		k.emitLabel(fmt.Sprint(name, n))
		k.stepColumns(n, blend)
		k.emitOp("SUB $%d, R10", n)
		k.emitOp("CMP $%d, R10", n)
		k.emitOp("BGE %s%d", name, n)
		k.emitOp("CBZ R10, next")
		k.stepBack(n, blend)
		k.stepColumns(n, blend)
		k.emitOp("B next")
	}
	emitSteps(8, "Small")
	k.emitLabel(name + "Small")
	emitSteps(4, "Tiny")
	k.emitLabel(name + "Tiny")
	k.emitOp("CBZ R10, next")
	k.stepColumns(1, blend)
	k.emitOp("SUB $1, R10")
	k.emitOp("B %sTiny", name)
}

// loadRowAddress loads the address of a source row into to and advances the register index.
func (k *neon) loadRowAddress(index, to string) {
	k.emitOp("MOVW.P 4(%s), R19", index)
	k.emitOp("MADD R19, R6, R7, %s", to)
}

// beginKernel writes the start of a kernel, which loads the arguments into registers.
func (k *neon) beginKernel(name string) {
	fmt.Fprintf(k, "\n// func %s(a *rowArgs)\nTEXT ·%[1]s(SB), NOSPLIT, $0-8\n", name)
	k.emitOp("MOVD a+0(FP), R0")
	for i, field := range []int{
		offRows,
		offDst,
		offLeft,
		offRight,
		offWeight,
		offSrc,
		offSrcStep,
		offDstStep,
		offCols,
	} {
		k.emitOp("MOVD %d(R0), R%d", field, i+1)
	}
}

// writeKernel writes a kernel that blends rows. Weight 0 copies the left row.
func (k *neon) writeKernel(name string) {
	k.beginKernel(name)
	all := func(v, bits int) { // sets all lanes of a register
		k.emitOp("MOVD $%#x, R19", bits)
		k.emitOp("VDUP R19, V%d.S4", v)
	}
	if k.epi != plain {
		for i, v := range []int{25, 24, 23, 22} {
			k.emitOp("FMOVS %d(R0), F%d", offScale+4*i, v)
			k.emitOp("VDUP V%d.S[0], V%[1]d.S4", v)
		}
	}
	if k.epi == unitNorm {
		all(21, 0x437f0000) // 255
	}
	if k.dst == bf16 { // constants of roundBFloat16
		all(28, 0x7fff)
		all(27, 1)
		all(26, 0x7fc0) // NaN
	}
	if k.dst != f32 { // V30 clears signs, V29 holds the largest magnitudes
		all(30, 0x7fff7fff)
		k.emitOp("VEOR V29.B16, V29.B16, V29.B16")
	}
	k.emitLabel("row")
	k.emitOp("CBZ R1, end")
	k.loadRowAddress("R3", "R11")
	k.loadRowAddress("R4", "R12")
	// V31 is the weight in float32. If it is 0, the left row is copied.
	k.emitOp("FMOVD.P 8(R5), F31")
	k.emitOp("FCVTDS F31, F31")
	k.emitOp("FCMPS $(0.0), F31")
	k.emitOp("BEQ left")
	k.emitOp("VDUP V31.S[0], V31.S4")
	k.writeColumns("blend", true)
	k.emitLabel("left")
	k.writeColumns("left", false)
	k.emitLabel("next")
	k.emitOp("ADD R8, R2")
	k.emitOp("SUB $1, R1")
	k.emitOp("B row")
	k.emitLabel("end")
	if k.dst != f32 {
		k.emitOp("ADD $%d, R0, R19", offLimits)
		k.emitOp("VST1 [V29.B16], (R19)")
	}
	k.emitOp("RET")
}

// writeArm64 writes the kernels and their declarations.
func writeArm64(assembly, declarations string) error {
	var text, declared strings.Builder
	text.WriteString(
		"// Code generated by gen, by go generate. DO NOT EDIT.\n\n//go:build !purego\n" +
			"\n#include \"textflag.h\"\n",
	)
	declared.WriteString(
		"// Code generated by gen, by go generate. DO NOT EDIT.\n\n//go:build !purego\n" +
			"\npackage cpu\n",
	)
	for _, dst := range []kind{f32, f16, bf16} {
		for _, src := range []kind{f32, f16, bf16, u8} {
			for _, epi := range []epilogue{plain, norm, unitNorm} {
				if epi == unitNorm && src != u8 {
					continue
				}
				name := "lerp" + src.name + dst.name + suffix[epi]
				(&neon{&text, src, dst, epi}).writeKernel(name)
				fmt.Fprintf(
					&declared,
					"\n// %s blends rows of %s into %s.\n//\n//go:noescape\nfunc %[1]s(a *rowArgs)\n",
					name,
					src.name,
					dst.name,
				)
			}
		}
	}
	(&neon{Builder: &text}).writeSlerp()
	declared.WriteString(
		"\n// slerpF32 blends at least two rows of quaternions, with the same bits as on amd64.\n" +
			"//\n//go:noescape\nfunc slerpF32(a *rowArgs)\n",
	)
	if err := os.WriteFile(assembly, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(declarations, []byte(declared.String()), 0o644)
}
