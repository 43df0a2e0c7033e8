// Package npy reads files of NumPy: npy v1 to v3, arrays in npz archives, and the pickles of object
// arrays.
//
// # Contract
//
//	npy.N1  A header is the dict of three entries that NumPy writes. Nothing is evaluated. The
//	        shape is compared with the number of bytes in the file before memory is allocated.
//	npy.N2  An Array is in C order and little-endian for every file. If the file has this layout,
//	        the array aliases the file's bytes.
//	npy.N3  A pickle runs no code. Opcodes build lists, dicts, tuples, numbers and texts. A pickle
//	        may name only the classes and functions that NumPy's arrays, scalars and dtypes need
//	        (Whitelist). Any other name is Unsupported as soon as it is named, before it is
//	        called. The error contains it.
//	npy.N4  Memory is proportional to the file. Objects that a pickle repeats by reference are
//	        shared, and the nesting depth is limited.
//	npy.N5  No input causes a panic. A fault is a typed error with the position in the file.
package npy
