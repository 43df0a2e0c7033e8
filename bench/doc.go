// Package bench measures RoboCache and its peers. A runner executes a workload in a fresh process,
// and the runs of all runners are interleaved.
//
// # Contract
//
//	bench.C1  Runners run in turn (A B C A B C …), each run in a fresh process. Figures are minimum,
//	          median and maximum over the repeats.
//	bench.C2  The CPU seconds of a runner are user + system time of its process tree, read at both
//	          ends of the measured window.
//	bench.C3  The measured window is one of two kinds. It consists of whole epochs after a first one;
//	          queues are then empty at both ends, so no work happens outside the window. Or it has a
//	          duration, and begins and ends with the arrival of a batch.
//	bench.C4  Every runner of a loader logs the order of its samples. The harness hashes the order,
//	          counts the deliveries of each sample, and compares its randomness with a perfect
//	          shuffle.
//	bench.C5  A peer runs with its best known settings, which the report names. torch uses one thread
//	          in every runner.
//	bench.C6  A runner that fails is reported as failed, with its own message and without figures.
//	bench.C7  A bar is checked repeat by repeat, on runners of one interleaved measurement. A runner
//	          of RoboCache fails all its bars if it delivers a wrong frame, or does not deliver each
//	          sample once per epoch. If a bar is missed, the report shows what the hardware limit
//	          allows.
//	bench.C8  robocache-bench formats: runners of one case that report a hash of the values they read
//	          must report the same hash.
//
// # Where things are
//
// This module uses only the public API of RoboCache (imports_test.go). Cases are data. cases.yaml
// contains the scenarios, sets, networks, runners with their options, families, and cases with
// their bars (report.Bar). all.yaml contains the parts of the whole suite, and ops/rows.yaml the
// kernels. cases.go, all.go and ops/rows.go read them.
//
// programs.go makes a Runner from an entry. run.go starts the runner with its job, a Workload as
// JSON, interleaves runners and checks what they delivered. runners/robocache_bench/common.py
// describes the protocol and implements the window in Python. cases_run.go runs cases, suite.go
// scenarios, train.go training, and all.go the suite with the programs robocache and
// robocache-bench. process.go observes a run from outside. window.go implements the measured
// window, tally.go checks the order, and frames.go compares frames. A report is a report.Document,
// which bench/report writes in all formats.
//
// A new case is an entry of a table. A new kind of case needs a runner and a verb in
// cmd/robocache-bench. The runner is a Python module in runners/robocache_bench that calls
// common.measure or common.passes, or a kind of job that Serve accepts.
package bench
