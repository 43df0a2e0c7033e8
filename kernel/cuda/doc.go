// Package cuda runs the operations of package kernel on an NVIDIA GPU, with the same bits.
//
// # Contract
//
//	G1   One binary for machines with and without a GPU: the driver's library is opened at run time, nothing links to it, and neither a toolkit nor cgo is needed. Open says by class and reason what is missing: no driver, no device, driver too old, no image for the chip.
//	G2   The kernels are compiled ahead (images): machine code for sm_80, 86, 89, 90, 100, PTX for what comes after. They are those of src: a test compares hashes, and rebuilds where NVRTC is there.
//	G3   Memory, streams and contexts are the caller's. A call takes the primary context, which frameworks use too, makes it current where another or none is, and puts back what was there. A Launch allocates nothing on the device.
//	G4   Run launches and does not wait; it can be captured in a graph, and a replay computes with what the captured addresses hold by then. Only checks of values (Validate, edge error, FailOutside) wait, and a capture of these is Misuse.
//	G5   Run does not allocate on the host either.
//	G6   An error is reported by the call that caused it: a launch that fails names kernel, grid, block, shared memory and arguments; nothing stays pending for a later call.
//	G7   Extents may be 0: nothing is launched. Grids are one-dimensional, offsets 64-bit: more than 2^31 elements are legal.
//	G8   Host memory that is asked of the device is refused before the launch, memory that does not fit before it is taken.
//
// # How it is built
//
// Host code makes a Launch: calls of kernels, each with one parameter struct (its Go mirror has the
// same layout), and the fields that addresses go into. What runs it is a launcher: the driver's
// device (gpu), or the simulator of package sim, which compiles the same sources for the CPU. All
// but the launch itself is so tested without a GPU.
package cuda
