// Package vector computes the numbers that a policy reads and writes from the rows of a dataset:
// columns of a stream, relative to a reference row, in another form of rotation, normalized.
//
// Contract:
//
//	vector.C1  A Part is a pure function of one row, one reference row and the number of the step.
//	vector.C2  Values returns the numbers before normalization. Statistics are made of them.
//	vector.C3  With precision float32, each operation rounds to float32, as NumPy and torch do with
//	           float32 arrays; the divisor of a norm is computed in float64 and rounded once.
//	           With mixed, Values rounds only what it reads. Normalize rounds the
//	           quotient to float32 and continues in float32.
//	vector.C4  A constant column never divides by 0, unless its norm sets "formula".
//
// Intuitively, Values undoes how a robot stores its numbers, and Normalize is one client's formula.
package vector
