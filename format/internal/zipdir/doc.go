// Package zipdir reads zip archives whose members are data: npz files and zipped zarr stores. The
// central directory is read once, with one request where it is small; members are fetched by range.
//
// # Contract
//
//	Z1  What the central directory says is what counts; zip64 sizes and counts are read there. Each member must lie in the archive, before
//	    the directory, and apart from every other; two members of one name are refused, as are names that leave the archive's root.
//	Z2  Stored members are given as they lie in the file, without a copy; deflated ones are inflated into a buffer of the declared size.
//	    A member's CRC is checked whenever all of it is read.
//	Z3  A declared size is checked against the limit, and of deflate against what its packed bytes can hold, before memory is taken.
//	Z4  Encrypted members, and methods other than stored and deflate, are Unsupported by name when they are read; the others open.
package zipdir
