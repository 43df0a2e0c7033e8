//go:build !purego

#include "textflag.h"

// Bytes 0-2, 6-8 and 12-14 to the front; and of a load eight bytes on those of the fourth pixel behind them.
DATA three<>+0(SB)/8, $0x0d0c080706020100
DATA three<>+8(SB)/8, $0x808080808080800e
DATA three<>+16(SB)/8, $0x8080808080808080
DATA three<>+24(SB)/8, $0x808080800c0b0a80
GLOBL three<>(SB), RODATA|NOPTR, $32

// func threeOfSix(dst, src *byte, blocks int)
TEXT ·threeOfSix(SB), NOSPLIT, $0-24
	MOVQ  dst+0(FP), DI
	MOVQ  src+8(FP), SI
	MOVQ  blocks+16(FP), CX
	MOVOU three<>+0(SB), X6
	MOVOU three<>+16(SB), X7

loop:
	MOVOU  (SI), X0
	MOVOU  8(SI), X1
	MOVOU  24(SI), X2
	MOVOU  32(SI), X3
	PSHUFB X6, X0
	PSHUFB X7, X1
	PSHUFB X6, X2
	PSHUFB X7, X3
	POR    X1, X0
	POR    X3, X2
	MOVOU  X0, (DI)
	MOVOU  X2, 12(DI)
	ADDQ   $48, SI
	ADDQ   $24, DI
	DECQ   CX
	JNZ    loop
	RET

// func fourOfEight(dst, src *byte, blocks int)
TEXT ·fourOfEight(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX

loop:
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	SHUFPS $0x88, X1, X0
	SHUFPS $0x88, X3, X2
	MOVUPS X0, (DI)
	MOVUPS X2, 16(DI)
	ADDQ   $64, SI
	ADDQ   $32, DI
	DECQ   CX
	JNZ    loop
	RET
