// Package robocache is the domain of a data engine for robot learning: datasets, episodes, streams,
// features, rows, and the one error type. It knows no file format, no store and no decoder; those
// register themselves (Register) or stand behind the interfaces here.
//
// # Contract
//
//	R1  Time is int64 nanoseconds everywhere in Go. Seconds in float appear only in the CLI and in Python.
//	R2  A row is named by (episode position, row in that episode), both from 0, in the order of the dataset's index.
//	R3  A Dataset may be used by many goroutines. Info, Len and Task never block on I/O after Open.
//	R4  Gather and Text copy: what they give is the caller's. Frames gives places, not pixels.
//	R5  Every error that leaves a package is an *Error, or wraps one; errors.Is(err, ErrMalformed) and its siblings tell the class.
//	R6  No goroutine outlives Close.
//
// Arrows point leftwards in the way of the data: store → format → align → loader → deliver (see
// ARCHITECTURE.md).
package robocache
