// Package ops measures the kernels: resample, fuse and voxelize, on CPU or GPU, beside their peers and a copy of as many bytes.
//
// # Contract
//
//	O1  Ours equals the reference bit for bit, and 400 values of a peer are right, before either is timed; a wrong runner gives no figure.
//	O2  The limit is a copy of as many bytes as the work cannot do without, in the same run; runners take turns, ratios are of one round.
//	O3  Peers are Python processes that are kept, since compiling takes them half a minute; they have as many threads as ours.
//
// rows.go has the cases, work.go what one computes, inputs.go its data, call.go the operation and the truth, host.go and cuda.go our runners,
// peer.go the peers' (runners/ops.py has the protocol), run.go the rounds, bar.go and report.go what is said of them.
package ops
