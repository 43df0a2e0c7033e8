//go:build linux

#include "textflag.h"

// A launch by one passage into C: is the context current, else push it; launch; pop. It runs on a system stack by C's calling convention: DI is
// a *passage, whose offsets stand below (TestLayout compares them). Results are CUresults; BX is kept by what is called.

GLOBL ·passageABI0(SB), NOPTR|RODATA, $8
DATA ·passageABI0(SB)/8, $passageC(SB)

TEXT passageC(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	MOVQ  DI, BX
	LEAQ  40(BX), DI
	MOVQ  0(BX), AX
	CALL  AX           // cuCtxGetCurrent(&current)
	TESTL AX, AX
	JNE   done
	MOVQ  32(BX), CX
	CMPQ  40(BX), CX
	JEQ   launch
	MOVQ  32(BX), DI
	MOVQ  8(BX), AX
	CALL  AX           // cuCtxPushCurrent(context)
	TESTL AX, AX
	JNE   done
	MOVL  $1, 48(BX)   // pushed

launch:
	MOVQ  56(BX), DI
	MOVQ  64(BX), SI
	MOVQ  72(BX), DX
	XORL  CX, CX
	MOVQ  24(BX), AX
	CALL  AX           // cuLaunchKernelEx(config, function, params, nil)
	MOVL  AX, 52(BX)
	CMPL  48(BX), $0
	JEQ   leave
	LEAQ  40(BX), DI
	MOVQ  16(BX), AX
	CALL  AX           // cuCtxPopCurrent(&current)

leave:
	MOVL  52(BX), AX

done:
	MOVL AX, 52(BX)
	POPQ BX
	RET
