// Package bench measures: workloads run by runners (ours and the peers'), interleaved, each run in
// a fresh process.
//
// # Contract
//
//	B1  Runners run in turn, A B C A B C …, a fresh process each; figures are min, median and max over the repeats.
//	B2  A runner's CPU seconds are user + system of its whole process tree, read at the ends of the measured window.
//	B3  The measured window is whole epochs after a first one (queues are empty at both ends, so nothing is paid outside it), or seconds from the arrival of a batch to that of another.
//	B4  Every runner of a loader logs the order of its samples; the harness hashes it, and counts how often each sample came and how much of the ideal randomness it has.
//	B5  A peer runs at its best known setting, named in the report; torch has one thread in every runner.
//	B6  A runner that fails is reported as failed, with its own words; no figure is made up for it.
//	B7  A bar is checked on runners of one interleaved run, repeat by repeat. One of ours that shows a wrong frame, or does not give each
//	    sample once an epoch, passes none; what a limit leaves possible is shown beside a bar that is missed.
//	B10 robocache-bench formats: runners of one case that say what they read must have read the same.
//
// # Where things are
//
// This module uses the public API of RoboCache only (imports_test.go). A case is data: cases.yaml
// has the scenarios, sets, networks, runners with their options, families and cases with their bars
// (report.Bar), all.yaml the parts of the whole suite, ops/rows.yaml the kernels; cases.go, all.go
// and ops/rows.go read them. programs.go makes a Runner of an entry, run.go starts it with its job,
// a Workload as JSON, lets runners take turns and checks what they delivered;
// runners/robocache_bench/common.py has the protocol, and the window for Python. cases_run.go runs
// cases, suite.go scenarios, train.go training, all.go the suite by the programs robocache and
// robocache-bench. process.go sees a run from outside; window.go is the measuring window and
// tally.go the count of its order; frames.go compares frames. A report is a report.Document, which
// bench/report writes in every form.
//
// A new case is an entry of a table. A new kind of case is a runner in runners/robocache_bench that
// calls common.measure or common.passes, or one that Serve knows, and a verb in
// cmd/robocache-bench.
package bench
