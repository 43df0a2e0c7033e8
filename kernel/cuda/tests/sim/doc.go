// Package sim runs CUDA kernels on the host. It compiles the .cu files of kernel/cuda/src with g++
// against sim.h, and replaces a GPU in tests.
//
// # Contract
//
//	sim.S1  The threads of a block are fibers. Barriers, warp shuffles, votes, reductions and atomics
//	        work as on a GPU. Blocks run one after another.
//	sim.S2  After every barrier, the order of threads is shuffled by a seed (seed 0: not at all), so
//	        that a missing barrier changes the result.
//	sim.S3  Shared memory is garbage when a block starts. Memory of Alloc is garbage at first.
//	sim.S4  Memory of Alloc ends (or begins) at a page that cannot be touched, so an access beyond it
//	        is an error of the launch. Other errors are an overrun of shared memory, divergent
//	        barriers, warp operations with missing lanes, and an integer division by zero.
//	sim.S5  With Checked, every load and store is checked. Errors are accesses that cross the end of
//	        a buffer, reads of shared memory that was never written, unaligned addresses, and races.
//	        A race is two accesses of a byte by different threads without a barrier between them,
//	        where one is a write that changes the byte and not both are atomic. For threads of one
//	        warp, a warp operation counts as a barrier. Plain accesses of different blocks are never
//	        ordered, unless Ordered is set.
//	sim.S6  Arithmetic is IEEE and never contracted, as in the images. sin, cos, exp and log are those
//	        of the C library.
package sim
