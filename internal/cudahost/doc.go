// Package cudahost gives page-locked memory of the host through the CUDA driver, for batches that a GPU copies from.
//
// # Contract
//
//	H1  The driver's library is opened at run time, by the first Open: nothing links to it, and the package builds without cgo.
//	H2  Where there is no driver, no device, or too little that may be locked, Open and Alloc say so by class and reason.
//	H3  Memory is page aligned, zeroed, portable (page-locked for every context of the process), and stays so until Free.
//	H4  All calls may come from many goroutines. Each makes the device's primary context current on its own thread and puts back what
//	    was there, so that a framework in the same process does not notice.
//	H5  No context is made where one is: with device below 0 that of the device is taken which is in use already. It is given back
//	    after Close, when the last memory is.
package cudahost
