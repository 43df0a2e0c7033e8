// Package sim runs CUDA kernels on the host: the .cu files of kernel/cuda/src, compiled by g++
// against sim.h. It stands for a GPU in tests.
//
// # Contract
//
//	S1  A block's threads are fibers. Barriers, warp shuffles, votes and reductions, and atomics mean what they mean on a GPU; blocks run one after another.
//	S2  The order of threads is shuffled by a seed after every barrier (seed 0: not at all), so that a missing barrier shows as a result that changes.
//	S3  Shared memory is garbage when a block starts, memory of Alloc when it is given.
//	S4  Memory of Alloc ends (or begins) at a page that cannot be touched: an access beyond it is an error of the launch, as are shared memory overrun, divergent barriers, warp operations whose lanes do not come, an integer division by zero.
//	S5  Checked: every load and store is looked at. Accesses that touch a buffer but leave it, reads of shared memory that nobody wrote, addresses that are not aligned, and races are errors. A race is two accesses of a byte by different threads, one of them a write that changes it, with no barrier between them (for a warp: no warp operation), and not both atomic; between blocks nothing orders plain accesses unless the launch says that the kernel does.
//	S6  Arithmetic is IEEE and never contracted, as the images are compiled. sin, cos, exp and log are those of the C library.
package sim
