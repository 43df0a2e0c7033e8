// Package ops contains the rows of `robocache-bench ops`. They measure the kernels resample, fuse
// and voxelize on CPU or GPU, together with peers and a copy of the same number of bytes.
//
// # Contract
//
//	ops.C1  Results are checked before timing. RoboCache, called from Python, must match the
//	        reference bit for bit, and the values of peers must be right. A wrong runner gives no
//	        figure.
//	ops.C2  The limit is a copy of the bytes that the work must touch, measured in the same run.
//	        Runners are interleaved, and ratios are computed within a round.
//	ops.C3  One process times all runners of all rows, because the peers need half a minute to
//	        compile. All runners use the same number of threads.
//
// rows.yaml defines the rows, run.go starts the process and checks the bars, and report.go writes
// the report. runners/robocache_bench/ops.py measures; ops_ours.py and ops_peers.py contain the
// runners.
package ops
