// Package npy reads NumPy's files: npy v1 to v3, the arrays inside npz archives, and the pickles
// that object arrays are.
//
// # Contract
//
//	N1  A header is the dict of three entries that NumPy writes; nothing is evaluated. Its shape is checked against the bytes that follow before
//	    memory is taken.
//	N2  An Array is C order and little-endian whatever the file is; where the file is that already, it is the file's bytes without a copy.
//	N3  A pickle runs no code: opcodes build lists, dicts, tuples, numbers and texts. Of classes and functions it may name only those that
//	    NumPy's own arrays, scalars and dtypes need (Whitelist); any other is Unsupported by its name, when it is named and not only when
//	    it is called.
//	N4  Memory is in proportion to the file: what a pickle repeats by reference is shared, and depth is bounded.
//	N5  No input panics; what is wrong is a typed error with the place in the file.
package npy
