// Package cuda runs the operations of package kernel on an NVIDIA GPU, with the same bits.
//
// # Contract
//
//	cuda.G1  One binary works on machines with and without a GPU. The driver's library is opened at
//	         run time. Nothing links to it, and neither a toolkit nor cgo is needed. Open returns an
//	         error with class and reason if something is missing: no driver, no device, a driver
//	         that is too old, no image for the chip.
//	cuda.G2  The kernels are compiled in advance (package images): machine code for sm_80, 86, 89,
//	         90 and 100, and PTX for later chips. They belong to the sources in src: a test
//	         compares hashes, and compiles them again if NVRTC is available.
//	cuda.G3  Memory, streams and contexts belong to the caller. A call uses the primary context, as
//	         frameworks do. If another context or none is current, the call makes the primary
//	         context current and restores the previous one. Launching allocates no device memory.
//	cuda.G4  Run launches and does not wait. It can be captured in a graph; a replay uses the
//	         contents that the captured addresses have at that time. Only checks of values
//	         (Validate, ErrorEdge, FailOutside) wait. Capturing these is Misuse.
//	cuda.G5  Run does not allocate on the host either.
//	cuda.G6  An error is returned by the call that caused it. The error of a failed launch names
//	         kernel, grid, block, shared memory and arguments. No error is pending for a later call.
//	cuda.G7  Extents may be 0; then nothing is launched. Grids are one-dimensional and offsets have
//	         64 bits, so more than 2^31 elements are legal.
//	cuda.G8  Host memory that is passed to the device is rejected before the launch. Memory that does
//	         not fit is rejected before it is allocated.
//
// # How it is built
//
// Host code builds a Launch. It consists of calls of kernels, each with one parameter struct, and
// of the fields that addresses are written to. The Go struct mirrors the struct in CUDA C.
//
// A launcher runs the calls. It is the driver's device (gpu), or the simulator of package sim,
// which compiles the same sources for the CPU. Everything except the launch itself can therefore be
// tested without a GPU.
package cuda
