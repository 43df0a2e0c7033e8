// Package cudahost is the door to the CUDA driver: its library, opened once, and page-locked memory
// of the host through it, for batches that a GPU copies from. The devices and their kernels are
// kernel/cuda's.
//
// # Contract
//
//	H1  The driver's library is opened at run time, by the first Load or Open, in this place alone: nothing links to it, and the package builds without cgo.
//	H2  Where there is no driver, no device, or too little that may be locked, Open and Alloc say so by class and reason. A function that the
//	    driver lacks is named, beside the driver's version.
//	H3  Memory is page aligned, zeroed, portable (page-locked for every context of the process), and stays so until Free.
//	H4  All calls may come from many goroutines. Each makes the device's primary context current on its own thread and puts back what
//	    was there, so that a framework in the same process does not notice.
//	H5  No context is made where one is: with device below 0 that of the device is taken which is in use already. It is given back
//	    after Close, when the last memory is.
//	H6  A result that means that the device is lost to the process (Lost) is ErrTemporary: no data is at fault, and a new process may go on.
package cudahost
