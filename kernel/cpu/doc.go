// Package cpu is the back end for the processor's cores: AVX2 where the processor has it; on arm64
// NEON for rows that are blended (slerp too), normalised and cast, and plain Go for the search for
// timestamps and voxels; plain Go elsewhere.
//
// # Contract
//
//	C1  Equal to kernel.Reference to the bit, on any processor, with any number of threads; slerp to the float32 step of its contract. Errors are the reference's, word for word.
//	C2  What has no kernel (columns with gaps, integers that are computed with, mean, angle, augmentation) is made by kernel.Resample, tile by tile, on the same threads.
//	C3  A plan is made once for streams on one clock, and once a worker where all entries share their timestamps and targets.
//	C4  Kernels read and write nothing outside the rows they are given; prefetches may name any address.
//	C5  Work of less than 64 KB stays on the caller's thread. Other threads live as long as the call.
//	C6  After an error the outputs may hold anything, except under ErrorEdge: there all rows are planned before any is written.
//	C7  Rows of results too large for the caches (streamBytes) are stored round them, where rows lie at multiples of 32 bytes.
//	C8  Scratch is kept from call to call: on one thread a call allocates no more than the checks of package kernel do.
//	C9  A panic on any thread is the caller's, when all threads are done.
//
// The assembly is written by gen, a module of its own; a test compares it with what gen writes. The
// build tag purego leaves it out.
//
//go:generate go -C gen run .
package cpu
