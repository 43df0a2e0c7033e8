// Package conform runs the conformance vectors of kernel on any back end: the pure-Go reference,
// SIMD, CUDA. testdata/generate.py writes the vectors by logic of its own and says what is in them.
package conform
