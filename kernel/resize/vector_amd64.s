//go:build !purego

#include "textflag.h"

// The size of a tapLoad and the offsets of its fields.
#define LOAD 112
#define PICK 16
#define HIGH 48
#define LOW 80

// ROUNDING sets X15 to the shift in AX, and each number of Y14 to half of the removed bits.
#define ROUNDING \
	VMOVQ AX, X15; \
	VPCMPEQD Y14, Y14, Y14; \
	VPSRLD $31, Y14, Y14; \
	VPSLLD X15, Y14, Y14; \
	VPSRLD $1, Y14, Y14

// TAKE sets Y0 to the samples of a load at BX.
#define TAKE \
	MOVLQSX (BX), R9; \
	MOVLQSX 4(BX), R10; \
	VMOVDQU (SI)(R9*1), X0; \
	VINSERTI128 $1, (SI)(R10*1), Y0, Y0; \
	VPSHUFB PICK(BX), Y0, Y0

// func sumColumns(out, row *byte, loads *tapLoad, groups, steps, shift int)
TEXT ·sumColumns(SB), NOSPLIT, $0-48
	MOVQ out+0(FP), DI
	MOVQ row+8(FP), SI
	MOVQ loads+16(FP), BX
	MOVQ groups+24(FP), CX
	MOVQ steps+32(FP), DX
	MOVQ shift+40(FP), AX
	ROUNDING

group:
	VPXOR   Y4, Y4, Y4 // sums of the high parts
	VMOVDQA Y14, Y5    // sums of the low parts
	MOVQ    DX, R8

step:
	TAKE
	VPMADDWD HIGH(BX), Y0, Y1
	VPMADDWD LOW(BX), Y0, Y2
	VPADDD   Y1, Y4, Y4
	VPADDD   Y2, Y5, Y5
	ADDQ     $LOAD, BX
	DECQ     R8
	JNZ      step
	VPSLLD   $11, Y4, Y4
	VPADDD   Y5, Y4, Y4
	VPSRAD   X15, Y4, Y4

	// Clip to bytes. Each half of the vector has four of them.
	VPACKSSDW    Y4, Y4, Y4
	VPACKUSWB    Y4, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPUNPCKLDQ   X5, X4, X4
	VMOVQ        X4, (DI)
	ADDQ         $8, DI
	DECQ         CX
	JNZ          group
	VZEROUPPER
	RET

// func sumByteRows(out, rows *byte, pitch int, weights *[2]uint32, pairs, blocks, shift int)
TEXT ·sumByteRows(SB), NOSPLIT, $0-56
	MOVQ out+0(FP), DI
	MOVQ rows+8(FP), SI
	MOVQ pitch+16(FP), DX
	MOVQ weights+24(FP), BX
	MOVQ pairs+32(FP), R13
	MOVQ blocks+40(FP), CX
	MOVQ shift+48(FP), AX
	ROUNDING

block:
	VPXOR   Y4, Y4, Y4 // high parts of pixels 0 to 7
	VPXOR   Y5, Y5, Y5 // and 8 to 15
	VMOVDQA Y14, Y6    // low parts
	VMOVDQA Y14, Y7
	MOVQ    SI, R11
	MOVQ    BX, R12
	MOVQ    R13, R8

pair:
	VMOVDQU      (R11), X0
	VMOVDQU      (R11)(DX*1), X1
	VPUNPCKHBW   X1, X0, X2
	VPUNPCKLBW   X1, X0, X0
	VPMOVZXBW    X0, Y0
	VPMOVZXBW    X2, Y2
	VPBROADCASTD (R12), Y8
	VPBROADCASTD 4(R12), Y9
	VPMADDWD     Y8, Y0, Y10
	VPMADDWD     Y8, Y2, Y11
	VPMADDWD     Y9, Y0, Y12
	VPMADDWD     Y9, Y2, Y13
	VPADDD       Y10, Y4, Y4
	VPADDD       Y11, Y5, Y5
	VPADDD       Y12, Y6, Y6
	VPADDD       Y13, Y7, Y7
	LEAQ         (R11)(DX*2), R11
	ADDQ         $8, R12
	DECQ         R8
	JNZ          pair
	VPSLLD       $11, Y4, Y4
	VPSLLD       $11, Y5, Y5
	VPADDD       Y6, Y4, Y4
	VPADDD       Y7, Y5, Y5
	VPSRAD       X15, Y4, Y4
	VPSRAD       X15, Y5, Y5
	VPACKSSDW    Y5, Y4, Y4
	VPERMQ       $0xD8, Y4, Y4
	VPACKUSWB    Y4, Y4, Y4
	VPERMQ       $0x08, Y4, Y4
	VMOVDQU      X4, (DI)
	ADDQ         $16, SI
	ADDQ         $16, DI
	DECQ         CX
	JNZ          block
	VZEROUPPER
	RET

// func sumFloatColumns(out *float32, row *byte, loads *tapLoad, groups, steps int)
TEXT ·sumFloatColumns(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ row+8(FP), SI
	MOVQ loads+16(FP), BX
	MOVQ groups+24(FP), CX
	MOVQ steps+32(FP), DX

group:
	VPXOR Y4, Y4, Y4
	MOVQ  DX, R8

step:
	TAKE
	VCVTDQ2PS Y0, Y0
	VMULPS    HIGH(BX), Y0, Y0
	VADDPS    Y0, Y4, Y4
	ADDQ      $LOAD, BX
	DECQ      R8
	JNZ       step
	VMOVUPS   Y4, (DI)
	ADDQ      $32, DI
	DECQ      CX
	JNZ       group
	VZEROUPPER
	RET

// func sumFloatLines(out *byte, rows *float32, pitch int, weights *float32, taps, blocks int, gain, bias float32)
TEXT ·sumFloatLines(SB), NOSPLIT, $0-56
	MOVQ         out+0(FP), DI
	MOVQ         rows+8(FP), SI
	MOVQ         pitch+16(FP), DX
	SHLQ         $2, DX
	MOVQ         weights+24(FP), BX
	MOVQ         taps+32(FP), R13
	MOVQ         blocks+40(FP), CX
	VBROADCASTSS gain+48(FP), Y14
	VBROADCASTSS bias+52(FP), Y15

block:
	VPXOR Y4, Y4, Y4 // pixels 0 to 7
	VPXOR Y5, Y5, Y5 // and 8 to 15
	MOVQ  SI, R11
	MOVQ  BX, R12
	MOVQ  R13, R8

tap:
	VBROADCASTSS (R12), Y8
	VMULPS       (R11), Y8, Y0
	VMULPS       32(R11), Y8, Y1
	VADDPS       Y0, Y4, Y4
	VADDPS       Y1, Y5, Y5
	ADDQ         DX, R11
	ADDQ         $4, R12
	DECQ         R8
	JNZ          tap
	VMULPS       Y14, Y4, Y4
	VMULPS       Y14, Y5, Y5
	VADDPS       Y15, Y4, Y4
	VADDPS       Y15, Y5, Y5
	VCVTPS2DQ    Y4, Y4
	VCVTPS2DQ    Y5, Y5
	VPACKSSDW    Y5, Y4, Y4
	VPERMQ       $0xD8, Y4, Y4
	VPACKUSWB    Y4, Y4, Y4
	VPERMQ       $0x08, Y4, Y4
	VMOVDQU      X4, (DI)
	ADDQ         $64, SI
	ADDQ         $16, DI
	DECQ         CX
	JNZ          block
	VZEROUPPER
	RET

// func blendPairs(out *int16, row *byte, loads *tapLoad, groups int)
TEXT ·blendPairs(SB), NOSPLIT, $0-32
	MOVQ out+0(FP), DI
	MOVQ row+8(FP), SI
	MOVQ loads+16(FP), BX
	MOVQ groups+24(FP), CX

group:
	TAKE
	VPMADDWD  HIGH(BX), Y0, Y1
	VPMADDWD  LOW(BX), Y0, Y2
	VPSLLD    $11, Y1, Y1
	VPADDD    Y2, Y1, Y1
	VPSRAD    $4, Y1, Y1
	VPACKSSDW Y1, Y1, Y1
	VPERMQ    $0x08, Y1, Y1
	VMOVDQU   X1, (DI)
	ADDQ      $LOAD, BX
	ADDQ      $16, DI
	DECQ      CX
	JNZ       group
	VZEROUPPER
	RET

// func blendLines(out *byte, first, second *int16, low, high, blocks int)
TEXT ·blendLines(SB), NOSPLIT, $0-48
	MOVQ         out+0(FP), DI
	MOVQ         first+8(FP), SI
	MOVQ         second+16(FP), DX
	MOVQ         low+24(FP), AX
	MOVQ         high+32(FP), BX
	MOVQ         blocks+40(FP), CX
	VMOVQ        AX, X8
	VMOVQ        BX, X9
	VPBROADCASTW X8, Y8
	VPBROADCASTW X9, Y9
	VPCMPEQW     Y14, Y14, Y14
	VPSRLW       $15, Y14, Y14
	VPSLLW       $1, Y14, Y14   // 2, to round

block:
	VPMULHW   (SI), Y8, Y0
	VPMULHW   (DX), Y9, Y1
	VPADDW    Y1, Y0, Y0
	VPADDW    Y14, Y0, Y0
	VPSRAW    $2, Y0, Y0
	VPACKUSWB Y0, Y0, Y0
	VPERMQ    $0x08, Y0, Y0
	VMOVDQU   X0, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DX
	ADDQ      $16, DI
	DECQ      CX
	JNZ       block
	VZEROUPPER
	RET
