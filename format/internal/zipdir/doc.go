// Package zipdir reads zip archives of data: npz files and zipped zarr stores. It reads the central
// directory once, in one request if the directory is small, and reads members by range.
//
// # Contract
//
//	zipdir.Z1  Sizes, offsets and counts are those of the central directory, with its zip64
//	           fields. Each member must be inside the archive, before the directory, and must not
//	           overlap another. It is an error if two members have one name, or if a name leaves
//	           the root of the archive.
//	zipdir.Z2  Stored members are returned without a copy. Deflated members are inflated into a
//	           buffer of the declared size. The CRC of a member is checked whenever the whole
//	           member is read.
//	zipdir.Z3  Before memory is allocated, a declared size is compared with the limit. For deflate
//	           it is also compared with the maximum that the packed bytes can contain.
//	zipdir.Z4  Encrypted members, and methods other than stored and deflate, are Unsupported when
//	           they are read, and the error names the method. Other members of the archive can be
//	           read.
package zipdir
