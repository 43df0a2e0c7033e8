//go:build !purego

#include "textflag.h"

// Z = Z carried on by the constants in K, and Y. T is scratch.
#define FOLD(Z, K, T, Y) \
	VPCLMULQDQ $0x00, K, Z, T; \
	VPCLMULQDQ $0x11, K, Z, Z; \
	VPTERNLOGQ $0x96, Y, T, Z

// func foldVPCLMUL(out *[16]byte, p *byte, blocks int, start uint32, k *constants)
TEXT ·foldVPCLMUL(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVL start+24(FP), AX
	MOVQ k+32(FP), DX

	VBROADCASTI32X4 (DX), Z16
	VMOVDQU64       (SI), Z0
	VMOVDQU64       64(SI), Z1
	VMOVDQU64       128(SI), Z2
	VMOVDQU64       192(SI), Z3
	VMOVD           AX, X4
	VPXORQ          Z4, Z0, Z0
	DECQ            CX

loop:
	ADDQ $256, SI
	FOLD(Z0, Z16, Z4, (SI))
	FOLD(Z1, Z16, Z5, 64(SI))
	FOLD(Z2, Z16, Z6, 128(SI))
	FOLD(Z3, Z16, Z7, 192(SI))
	DECQ CX
	JNZ  loop

	// Four of 64 bytes to one.
	VBROADCASTI32X4 16(DX), Z16
	FOLD(Z0, Z16, Z4, Z1)
	FOLD(Z0, Z16, Z4, Z2)
	FOLD(Z0, Z16, Z4, Z3)

	// Its four lanes to one.
	VMOVDQU64      32(DX), X16
	VEXTRACTI32X4  $1, Z0, X1
	VEXTRACTI32X4  $2, Z0, X2
	VEXTRACTI32X4  $3, Z0, X3
	FOLD(X0, X16, X4, X1)
	FOLD(X0, X16, X4, X2)
	FOLD(X0, X16, X4, X3)
	VMOVDQU64      X0, (DI)
	VZEROUPPER
	RET
