// Package robocache defines the terms of a data engine for robot learning: datasets, episodes,
// streams, features, rows, and one error type. It imports no package for file formats, storage or
// decoding. Format packages register themselves with Register; other parts implement the
// interfaces of this package.
//
// # Contract
//
//	R1  Time is int64 nanoseconds everywhere in Go. Float seconds appear only in the command line
//	    and in Python.
//	R2  A row is identified by the position of its episode and the row in that episode. Both count
//	    from 0, in the order of the dataset's index.
//	R3  A Dataset is safe for concurrent use. Info and Len never block on I/O after Open.
//	R4  Gather and Text copy: the caller owns the result. Frames returns locations, not pixels.
//	R5  Every error that leaves a package is an *Error or wraps one. errors.Is with ErrMalformed and
//	    the other class errors reports its class.
//	R6  No goroutine outlives Close.
//
// Data flows from store through format, align and loader to the consumer. Imports point the other
// way (see ARCHITECTURE.md).
package robocache
