// Package cudahost opens the CUDA driver's library, and allocates page-locked host memory for
// batches that a GPU copies from. Package kernel/cuda handles devices and their kernels.
//
// # Contract
//
//	cudahost.H1  The driver's library is opened at run time, by the first Load or Open. Only this
//	             package opens it. Nothing links to it, and the package builds without cgo.
//	cudahost.H2  If there is no driver, no device, or too little memory that may be locked, Open and
//	             Alloc return an error with class and reason. If the driver lacks a function, the
//	             error names the function and the driver's version.
//	cudahost.H3  Memory is page aligned, zeroed and portable (page-locked for every context of the
//	             process). It stays so until Free.
//	cudahost.H4  All calls are safe for concurrent use. Each call makes the device's primary context
//	             current on its own thread and restores the previous context, so that a framework
//	             in the same process is not affected.
//	cudahost.H5  With device below 0, Open uses a device that already has a context, and creates no
//	             second one. The context is released after Close, when all memory is freed.
//	cudahost.H6  A result that means that the device is lost to the process (Lost) is ErrTemporary.
//	             The data is not the cause, and a new process can continue.
//
// Intuitively, the package is a thin layer above dlopen: addresses of C functions in, typed errors
// out. It never owns a context alone, because PyTorch usually lives in the same process.
package cudahost
