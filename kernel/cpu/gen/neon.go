package main

import (
	"fmt"
	"os"
	"strings"
)

// The kernels that blend rows, for arm64. avo writes x86-64 alone, so these go out as text.
//
// Registers: R1 rows to go, R2 result, R3 and R4 the rows' indices, R5 weights, R6 source, R7 and R8 the distances of source's and result's rows, R9 columns;
// in a row R10 columns to go, R11 and R12 sources, R13 result, R14 and R15 a normalisation's numbers. V0, V1 are eight columns' values; V2 to V7, V16 and V17
// are for what a step needs, V21 and up for what all of them do.

// words are the encodings of what Go's assembler has no name for: four float32 a register, in the order result, first operand, second.
var words = map[string]uint32{
	"fsub": 0x4ea0d400, "fmul": 0x6e20dc00, "fdiv": 0x6e20fc00, "fcmgt": 0x6ea0e400, "fcmeq": 0x4e20e400, "iszero": 0x4ea0d800, "bic": 0x4e601c00,
	"dadd": 0x4e60d400, "dsub": 0x4ee0d400, "dmul": 0x6e60dc00, "ddiv": 0x6e60fc00, "dsqrt": 0x6ee1f800, "dcmgt": 0x6ee0e400, "dpos": 0x4ee0c800, // two float64
	"dcvtl": 0x0e617800, "dcvtl2": 0x4e617800, "dcvtn": 0x0e616800, "dcvtn2": 0x4e616800,
	"ucvtf": 0x6e21d800, "fcvtl": 0x0e217800, "fcvtl2": 0x4e217800, "fcvtn": 0x0e216800, "fcvtn2": 0x4e216800, "shll": 0x2e613800, "shll2": 0x6e613800,
}

// neon is the generator of one kernel.
type neon struct {
	*strings.Builder
	src, dst kind
	epi      epilogue
}

func (k *neon) op(format string, args ...any) { fmt.Fprintf(k, "\t"+format+"\n", args...) }

func (k *neon) label(name string) { fmt.Fprintf(k, "\n%s:\n", name) }

// word emits an instruction of words: v registers by their numbers.
func (k *neon) word(name string, d, n, m int) {
	k.op("WORD $%#08x // %s v%d, v%d, v%d", words[name]|uint32(m<<16|n<<5|d), name, d, n, m)
}

// lanes gives the registers of n columns, from v on.
func lanes(n, v int) string {
	if n == 8 {
		return fmt.Sprintf("[V%d.S4, V%d.S4]", v, v+1)
	}
	return fmt.Sprintf("[V%d.S4]", v)
}

// floats reads n float32 from the address in r, which goes on.
func (k *neon) floats(n int, r string, v int) {
	if n == 1 {
		k.op("FMOVS.P 4(%s), F%d", r, v)
		return
	}
	k.op("VLD1.P %d(%s), %s", 4*n, r, lanes(n, v))
}

// raw reads n elements of one or two bytes as they are.
func (k *neon) raw(n, size int, r string, v int) {
	switch {
	case n*size >= 8:
		k.op("VLD1.P %d(%s), [V%d.B%d]", n*size, r, v, n*size)
		return
	case n*size == 4:
		k.op("MOVWU.P 4(%s), R19", r)
	case size == 2:
		k.op("MOVHU.P 2(%s), R19", r)
	default:
		k.op("MOVBU.P 1(%s), R19", r)
	}
	k.op("FMOVS R19, F%d", v)
}

// load reads n columns as float32 into v, and from four on into the register behind it.
func (k *neon) load(n int, r string, v int) {
	if k.src == f32 {
		k.floats(n, r, v)
		return
	}
	k.raw(n, k.src.size, r, 16)
	switch k.src {
	case f16:
		k.word("fcvtl", v, 16, 0)
		if n == 8 {
			k.word("fcvtl2", v+1, 16, 0)
		}
	case bf16:
		k.word("shll", v, 16, 0)
		if n == 8 {
			k.word("shll2", v+1, 16, 0)
		}
	default:
		k.op("VUXTL V16.B8, V16.H8")
		k.op("VUXTL V16.H4, V%d.S4", v)
		k.word("ucvtf", v, v, 0)
		if n == 8 {
			k.op("VUXTL2 V16.H8, V%d.S4", v+1)
			k.word("ucvtf", v+1, v+1, 0)
		}
	}
}

// finish is the epilogue of n columns.
func (k *neon) finish(n int) {
	if k.epi == plain {
		return
	}
	k.floats(n, "R14", 4)
	k.floats(n, "R15", 6)
	for v := range 1 + n/8 {
		if k.epi == unitNorm {
			k.word("fdiv", v, v, 21)
		}
		k.word("fsub", v, v, 4+v)
		k.word("fmul", v, v, 25)
		k.word("fdiv", v, v, 6+v)
		k.word("fsub", v, v, 24)
		k.word("iszero", 16, 6+v, 0) // a constant channel gives 0
		k.word("bic", v, v, 16)
		// The value stays where it is NaN, and where both are zeros.
		k.word("fcmgt", 16, 23, v)
		k.op("VBIT V16.B16, V23.B16, V%d.B16", v)
		k.word("fcmgt", 16, v, 22)
		k.op("VBIT V16.B16, V22.B16, V%d.B16", v)
	}
}

// round makes bfloat16 of float32, in the low halves. NaN is looked for first: the rounding would carry some into infinity.
func (k *neon) round(v int) {
	k.word("fcmeq", 16, v, v)
	k.op("VUSHR $16, V%d.S4, V17.S4", v)
	k.op("VAND V27.B16, V17.B16, V17.B16")
	k.op("VADD V28.S4, V17.S4, V17.S4")
	k.op("VADD V17.S4, V%d.S4, V%d.S4", v, v)
	k.op("VUSHR $16, V%d.S4, V%d.S4", v, v)
	k.op("VBIF V16.B16, V26.B16, V%d.B16", v)
}

func (k *neon) store(n int) {
	switch {
	case k.dst == f32 && n == 1:
		k.op("FMOVS.P F0, 4(R13)")
		return
	case k.dst == f32:
		k.op("VST1.P %s, %d(R13)", lanes(n, 0), 4*n)
		return
	case k.dst == f16:
		k.word("fcvtn", 2, 0, 0)
		if n == 8 {
			k.word("fcvtn2", 2, 1, 0)
		}
	default:
		k.round(0)
		if n == 8 {
			k.round(1)
		}
		k.op("VUZP1 V%d.H8, V0.H8, V2.H8", n/8)
	}
	k.op("VAND V30.B16, V2.B16, V3.B16")
	k.op("VUMAX V3.H8, V29.H8, V29.H8")
	k.halves(n)
}

// halves writes n elements of two bytes.
func (k *neon) halves(n int) {
	if n == 1 {
		k.op("VMOV V2.H[0], R19")
		k.op("MOVH.P R19, 2(R13)")
		return
	}
	k.op("VST1.P [V2.B%d], %d(R13)", 2*n, 2*n)
}

// step makes n columns.
func (k *neon) step(n int, blend bool) {
	switch {
	case !blend && k.src == k.dst && k.epi == plain && k.src != f32:
		k.raw(n, 2, "R11", 2)
		k.halves(n)
		return
	case blend:
		k.load(n, "R11", 0)
		k.load(n, "R12", 2)
		for v := range 1 + n/8 {
			k.word("fsub", 2+v, 2+v, v)
			k.op("VFMLA V%d.S4, V31.S4, V%d.S4", 2+v, v)
		}
	default:
		k.load(n, "R11", 0)
	}
	k.finish(n)
	k.store(n)
}

// back goes back so far that the next n columns are the row's last.
func (k *neon) back(n int, blend bool) {
	shift := map[int]string{1: "R19", 2: "R19<<1", 4: "R19<<2"}
	k.op("MOVD $%d, R19", n)
	k.op("SUB R10, R19, R19")
	k.op("SUB %s, R11, R11", shift[k.src.size])
	if blend {
		k.op("SUB %s, R12, R12", shift[k.src.size])
	}
	k.op("SUB %s, R13, R13", shift[k.dst.size])
	if k.epi != plain {
		k.op("SUB R19<<2, R14, R14")
		k.op("SUB R19<<2, R15, R15")
	}
}

// columns goes along one row: eight columns at a time, the last eight overlapping the ones before, so that nothing beyond the row is touched.
func (k *neon) columns(name string, blend bool) {
	k.op("MOVD R9, R10")
	k.op("MOVD R2, R13")
	if k.epi != plain {
		k.op("MOVD %d(R0), R14", offA)
		k.op("MOVD %d(R0), R15", offB)
	}
	// some makes n columns at a time, and goes on at less where the row has fewer.
	some := func(n int, less string) {
		k.op("CMP $%d, R10", n)
		k.op("BLT %s%s", name, less)
		k.label(fmt.Sprint(name, n))
		k.step(n, blend)
		k.op("SUB $%d, R10", n)
		k.op("CMP $%d, R10", n)
		k.op("BGE %s%d", name, n)
		k.op("CBZ R10, next")
		k.back(n, blend)
		k.step(n, blend)
		k.op("B next")
	}
	some(8, "Small")
	k.label(name + "Small")
	some(4, "Tiny")
	k.label(name + "Tiny")
	k.op("CBZ R10, next")
	k.step(1, blend)
	k.op("SUB $1, R10")
	k.op("B %sTiny", name)
}

func (k *neon) row(index, to string) {
	k.op("MOVW.P 4(%s), R19", index)
	k.op("MADD R19, R6, R7, %s", to)
}

// begin is a kernel's head: the arguments in their registers.
func (k *neon) begin(name string) {
	fmt.Fprintf(k, "\n// func %s(a *rowArgs)\nTEXT ·%[1]s(SB), NOSPLIT, $0-8\n", name)
	k.op("MOVD a+0(FP), R0")
	for i, field := range []int{offRows, offDst, offLeft, offRight, offWeight, offSrc, offSrcStep, offDstStep, offCols} {
		k.op("MOVD %d(R0), R%d", field, i+1)
	}
}

func (k *neon) kernel(name string) {
	k.begin(name)
	all := func(v, bits int) {
		k.op("MOVD $%#x, R19", bits)
		k.op("VDUP R19, V%d.S4", v)
	}
	if k.epi != plain {
		for i, v := range []int{25, 24, 23, 22} {
			k.op("FMOVS %d(R0), F%d", offScale+4*i, v)
			k.op("VDUP V%d.S[0], V%[1]d.S4", v)
		}
	}
	if k.epi == unitNorm {
		all(21, 0x437f0000)
	}
	if k.dst == bf16 {
		all(28, 0x7fff)
		all(27, 1)
		all(26, 0x7fc0)
	}
	if k.dst != f32 {
		all(30, 0x7fff7fff)
		k.op("VEOR V29.B16, V29.B16, V29.B16")
	}
	k.label("row")
	k.op("CBZ R1, end")
	k.row("R3", "R11")
	k.row("R4", "R12")
	k.op("FMOVD.P 8(R5), F31")
	k.op("FCVTDS F31, F31")
	k.op("FCMPS $(0.0), F31")
	k.op("BEQ left")
	k.op("VDUP V31.S[0], V31.S4")
	k.columns("blend", true)
	k.label("left")
	k.columns("left", false)
	k.label("next")
	k.op("ADD R8, R2")
	k.op("SUB $1, R1")
	k.op("B row")
	k.label("end")
	if k.dst != f32 {
		k.op("ADD $%d, R0, R19", offLimits)
		k.op("VST1 [V29.B16], (R19)")
	}
	k.op("RET")
}

// arm64 writes the kernels and their declarations.
func arm64(assembly, declarations string) error {
	var text, declared strings.Builder
	text.WriteString("// Code generated by gen, by go generate. DO NOT EDIT.\n\n//go:build !purego\n\n#include \"textflag.h\"\n")
	declared.WriteString("// Code generated by gen, by go generate. DO NOT EDIT.\n\n//go:build !purego\n\npackage cpu\n")
	for _, dst := range []kind{f32, f16, bf16} {
		for _, src := range []kind{f32, f16, bf16, u8} {
			for _, epi := range []epilogue{plain, norm, unitNorm} {
				if epi == unitNorm && src != u8 {
					continue
				}
				name := "lerp" + src.name + dst.name + suffix[epi]
				(&neon{&text, src, dst, epi}).kernel(name)
				fmt.Fprintf(&declared, "\n// %s blends rows of %s into %s.\n//\n//go:noescape\nfunc %[1]s(a *rowArgs)\n", name, src.name, dst.name)
			}
		}
	}
	(&neon{Builder: &text}).slerp()
	declared.WriteString("\n// slerpF32 is that of amd64, to the bit, of two rows or more.\n//\n//go:noescape\nfunc slerpF32(a *rowArgs)\n")
	if err := os.WriteFile(assembly, []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(declarations, []byte(declared.String()), 0o644)
}
