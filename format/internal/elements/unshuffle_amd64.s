//go:build !purego

#include "textflag.h"

// func unshuffleSize2(dst, src *byte, n, some int)
TEXT ·unshuffleSize2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), DX
	MOVQ some+24(FP), CX

next:
	MOVOU     (SI), X0
	MOVOU     (SI)(DX*1), X1
	MOVO      X0, X2
	PUNPCKLBW X1, X0
	PUNPCKHBW X1, X2
	MOVOU     X0, (DI)
	MOVOU     X2, 16(DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNE       next
	RET

// func unshuffleSize4(dst, src *byte, n, some int)
TEXT ·unshuffleSize4(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), DX
	MOVQ some+24(FP), CX
	LEAQ (SI)(DX*2), R8

next:
	MOVQ      (SI), X0
	MOVQ      (SI)(DX*1), X1
	MOVQ      (R8), X2
	MOVQ      (R8)(DX*1), X3
	PUNPCKLBW X1, X0
	PUNPCKLBW X3, X2
	MOVO      X0, X1
	PUNPCKLWL X2, X0
	PUNPCKHWL X2, X1
	MOVOU     X0, (DI)
	MOVOU     X1, 16(DI)
	ADDQ      $8, SI
	ADDQ      $8, R8
	ADDQ      $32, DI
	SUBQ      $8, CX
	JNE       next
	RET

// func unshuffleSize8(dst, src *byte, n, some int)
TEXT ·unshuffleSize8(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), DX
	MOVQ some+24(FP), CX
	LEAQ (SI)(DX*2), R8
	LEAQ (SI)(DX*4), R9
	LEAQ (R8)(DX*4), R10

next:
	MOVQ      (SI), X0
	MOVQ      (SI)(DX*1), X1
	MOVQ      (R8), X2
	MOVQ      (R8)(DX*1), X3
	MOVQ      (R9), X4
	MOVQ      (R9)(DX*1), X5
	MOVQ      (R10), X6
	MOVQ      (R10)(DX*1), X7
	PUNPCKLBW X1, X0
	PUNPCKLBW X3, X2
	PUNPCKLBW X5, X4
	PUNPCKLBW X7, X6
	MOVO      X0, X1
	PUNPCKLWL X2, X0
	PUNPCKHWL X2, X1
	MOVO      X4, X5
	PUNPCKLWL X6, X4
	PUNPCKHWL X6, X5
	MOVO      X0, X2
	PUNPCKLLQ X4, X0
	PUNPCKHLQ X4, X2
	MOVO      X1, X3
	PUNPCKLLQ X5, X1
	PUNPCKHLQ X5, X3
	MOVOU     X0, (DI)
	MOVOU     X2, 16(DI)
	MOVOU     X1, 32(DI)
	MOVOU     X3, 48(DI)
	ADDQ      $8, SI
	ADDQ      $8, R8
	ADDQ      $8, R9
	ADDQ      $8, R10
	ADDQ      $64, DI
	SUBQ      $8, CX
	JNE       next
	RET
