//go:build !purego

#include "textflag.h"

// func unshuffleSize2(dst, src *byte, n, some int)
TEXT ·unshuffleSize2(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVD some+24(FP), R3
	ADD  R1, R2

next:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R2), [V1.B16]
	VST2.P [V0.B16, V1.B16], 32(R0)
	SUBS   $16, R3
	BNE    next
	RET

// func unshuffleSize4(dst, src *byte, n, some int)
TEXT ·unshuffleSize4(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVD some+24(FP), R3
	ADD  R2, R1, R4
	ADD  R2, R4, R5
	ADD  R2, R5, R6

next:
	VLD1.P 16(R1), [V0.B16]
	VLD1.P 16(R4), [V1.B16]
	VLD1.P 16(R5), [V2.B16]
	VLD1.P 16(R6), [V3.B16]
	VST4.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)
	SUBS   $16, R3
	BNE    next
	RET

// func unshuffleSize8(dst, src *byte, n, some int)
TEXT ·unshuffleSize8(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVD some+24(FP), R3
	ADD  R2, R1, R4
	ADD  R2, R4, R5
	ADD  R2, R5, R6
	ADD  R2, R6, R7
	ADD  R2, R7, R8
	ADD  R2, R8, R9
	ADD  R2, R9, R10

next:
	VLD1.P 8(R1), [V0.B8]
	VLD1.P 8(R4), [V4.B8]
	VLD1.P 8(R5), [V1.B8]
	VLD1.P 8(R6), [V5.B8]
	VLD1.P 8(R7), [V2.B8]
	VLD1.P 8(R8), [V6.B8]
	VLD1.P 8(R9), [V3.B8]
	VLD1.P 8(R10), [V7.B8]
	VZIP1  V4.B16, V0.B16, V0.B16
	VZIP1  V5.B16, V1.B16, V1.B16
	VZIP1  V6.B16, V2.B16, V2.B16
	VZIP1  V7.B16, V3.B16, V3.B16
	VST4.P [V0.H8, V1.H8, V2.H8, V3.H8], 64(R0)
	SUBS   $8, R3
	BNE    next
	RET
