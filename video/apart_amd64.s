//go:build amd64 && !purego

#include "textflag.h"

// 16 pixels a turn: 48 bytes in X0 to X2, nine shuffles in X6 to X14, a plane in X3.
// func apartSSSE3(red, green, blue, rgb *byte, blocks int, masks *[9][16]byte)
TEXT ·apartSSSE3(SB), NOSPLIT, $0-48
	MOVQ  red+0(FP), DI
	MOVQ  green+8(FP), SI
	MOVQ  blue+16(FP), DX
	MOVQ  rgb+24(FP), BX
	MOVQ  blocks+32(FP), CX
	MOVQ  masks+40(FP), AX
	MOVOU (AX), X6
	MOVOU 16(AX), X7
	MOVOU 32(AX), X8
	MOVOU 48(AX), X9
	MOVOU 64(AX), X10
	MOVOU 80(AX), X11
	MOVOU 96(AX), X12
	MOVOU 112(AX), X13
	MOVOU 128(AX), X14

loop:
	MOVOU  (BX), X0
	MOVOU  16(BX), X1
	MOVOU  32(BX), X2
	MOVO   X0, X3
	PSHUFB X6, X3
	MOVO   X1, X4
	PSHUFB X7, X4
	POR    X4, X3
	MOVO   X2, X5
	PSHUFB X8, X5
	POR    X5, X3
	MOVOU  X3, (DI)
	MOVO   X0, X3
	PSHUFB X9, X3
	MOVO   X1, X4
	PSHUFB X10, X4
	POR    X4, X3
	MOVO   X2, X5
	PSHUFB X11, X5
	POR    X5, X3
	MOVOU  X3, (SI)
	PSHUFB X12, X0
	PSHUFB X13, X1
	POR    X1, X0
	PSHUFB X14, X2
	POR    X2, X0
	MOVOU  X0, (DX)
	ADDQ   $48, BX
	ADDQ   $16, DI
	ADDQ   $16, SI
	ADDQ   $16, DX
	DECQ   CX
	JNZ    loop
	RET
