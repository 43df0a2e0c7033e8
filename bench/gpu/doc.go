// Package gpu watches NVIDIA GPUs while a benchmark runs, through NVML, the driver's own library
// for monitoring.
//
// # Contract
//
//	G1  The library is opened at run time. Where there is none, Start says so with an Unsupported error; a counter that the driver does not
//	    give is left out of the samples, and Missing has its reason.
//	G2  Sampling is done by the harness, not by the process that trains. All devices are sampled; a device is named by its UUID,
//	    because NVML does not follow CUDA_VISIBLE_DEVICES.
//	G3  A counter is no verdict. Counters says of each what it is and what it is not.
package gpu
