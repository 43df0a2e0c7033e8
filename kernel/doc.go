// Package kernel says what each operation computes, to the bit, and is its pure-Go reference. Faster back ends (SIMD,
// CUDA) live in folders below and agree with it: testdata/vectors holds the one set of conformance vectors that all of
// them and the Python client read.
//
// # Contract
//
//	K1   A Plan is rows of (kind, left, right, weight, valid): everything that time decides. It is made once (package align) and run for every stream on the same stamps.
//	K2   Linear: weight 0 gives the stored bits of the left sample; else fma(w, v1-v0, v0) in float32 with w rounded to float32, v1-v0 rounded to float32 and one rounding to the output type (nearest even). float64: the same in float64 with the unrounded weight.
//	K3   FMA32 is the exactly rounded float32 fused multiply-add under every GOAMD64 and GOARCH.
//	K4   previous, next, nearest and every exact hit move any type bit by bit.
//	K5   Slerp, angle and mean compute in float64 with the unrounded weight and round once to the output type.
//	K6   Slerp works on groups of four channels; a group whose norm is zero or not finite gives NaN, and the row is invalid.
//	K7   Integers under a computing mode are Misuse unless the output is floating point; booleans are never computed with.
//	K8   Any strides: 0, negative, gaps, and bases that are not aligned. Sources are never written. Any extent may be 0.
//	K9   Zero rows (policy mask, or no sample at all) are zero bits of the output type; no epilogue touches them.
//	K10  Epilogues run before the only rounding: (x-m)/(std+1e-8), or 2(x-lo)/(hi-lo)-1, by real division; a constant channel gives 0.
//	K11  Casts to float16 and bfloat16 round to nearest even, overflow to ±Inf and keep NaN a NaN; casts to integers truncate and saturate, NaN gives 0. Both are counted.
//	K12  Resample and Fuse do not allocate.
//
// NaN means any NaN: its payload is not part of the contract. Slerp is exact to 1 float32 ulp, everything else to the bit.
package kernel
