// Package gpu samples the counters of NVIDIA GPUs during a benchmark. It uses NVML, the monitoring
// library of the driver.
//
// # Contract
//
//	gpu.C1  The library is opened at run time. If it is absent, Start returns an Unsupported error.
//	        Samples leave out the counters that the driver does not provide, and Missing returns the
//	        reason.
//	gpu.C2  The harness samples, not the training process. It samples all devices and identifies them
//	        by UUID, because NVML ignores CUDA_VISIBLE_DEVICES.
//	gpu.C3  A counter alone proves nothing. Counters describes for each what it means and what it
//	        does not mean.
package gpu
