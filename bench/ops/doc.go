// Package ops has the rows of `robocache-bench ops`: the kernels resample, fuse and voxelize, on
// CPU or GPU, beside their peers and a copy of as many bytes.
//
// # Contract
//
//	O1  Ours, as it is called from Python, equals the reference bit for bit, and a peer's values are right, before either is timed; a wrong runner gives no figure.
//	O2  The limit is a copy of as many bytes as the work cannot do without, in the same run; runners take turns, ratios are of one round.
//	O3  All runners of all rows are timed in one process, since compiling takes the peers half a minute; they have as many threads as ours.
//
// rows.yaml has the cases, run.go starts the process and checks the bars, report.go shows them.
// runners/robocache_bench/ops.py measures; ops_ours.py and ops_peers.py have the runners.
package ops
