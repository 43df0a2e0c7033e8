// Package cpu is the back end for the cores of the processor. It uses AVX2 on amd64 processors that
// have it. On arm64 it uses NEON to blend (slerp too), normalize and cast rows, and plain Go for
// voxels and the search for timestamps. Everywhere else it uses plain Go.
//
// # Contract
//
//	cpu.C1  Results equal kernel.Reference to the bit, on any processor and with any number of
//	        threads. Slerp has the float32 step that its contract allows. Errors have the same text
//	        as the reference's errors.
//	cpu.C2  Work without a kernel is done by kernel.Resample, tile by tile, on the same threads.
//	        This concerns columns with gaps, integers that are computed with, mean, angle and
//	        augmentation.
//	cpu.C3  Streams with one clock share one plan. If all entries share their timestamps and
//	        targets, each worker computes the plan once.
//	cpu.C4  Kernels read and write nothing outside the rows that they get. Prefetches may use any
//	        address.
//	cpu.C5  Work of less than 64 KB stays on the caller's thread. Other threads end with the call.
//	cpu.C6  After an error the outputs are undefined, except under ErrorEdge: then all rows are
//	        planned before any row is written.
//	cpu.C7  If a result is too large for the caches (streamBytes) and its rows start at multiples
//	        of 32 bytes, its rows are stored around the caches.
//	cpu.C8  Scratch memory is reused from call to call. On one thread, a call allocates no more than
//	        the checks of package kernel do.
//	cpu.C9  A panic on any thread is raised in the caller after all threads have ended.
//
// Intuitively, a call is cut into units of rows. Each worker takes the next unit when it is free,
// plans its rows in its own memory, and runs the kernel for the types.
//
// Package gen, a separate module, writes the assembly; a test compares the assembly with gen's
// output. The build tag purego excludes the assembly.
//
//go:generate go -C gen run .
package cpu
