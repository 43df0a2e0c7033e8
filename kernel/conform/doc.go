// Package conform runs the conformance vectors of package kernel on any back end: the pure-Go
// reference, SIMD, or CUDA. testdata/generate.py computes the vectors independently of the Go code
// and documents them.
package conform
