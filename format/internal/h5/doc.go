// Package h5 reads HDF5 files as written by libhdf5 1.0 to 2.0. It does not use libhdf5, reads
// ranges of bytes, and is safe for concurrent use.
//
// # Contract
//
//	h5.H1  The reader supports superblocks 0 to 3, object headers 1 and 2, symbol tables, compact
//	       and dense links and attributes, and layouts 1 to 5 with all six chunk indexes. It
//	       decodes deflate, shuffle, fletcher32 and lzf.
//	h5.H2  Other features are ErrUnsupported, and the error names the feature: other filters,
//	       virtual data sets, external storage and links, shared message tables, filtered heaps,
//	       files of several parts.
//	h5.H3  Before memory is allocated, a declared size is compared with the file size, the limits
//	       in file.go and the ratio of deflate. Trees and chains of blocks visit no address twice:
//	       a cycle is ErrMalformed, never an endless loop.
//	h5.H4  Checksums of metadata and fletcher32 are verified. A list is complete or an error,
//	       never shorter.
//	h5.H5  At most 16 soft links are followed on the way to one object. A dangling link is
//	       ErrNotFound.
//	h5.H6  Nothing is read before it is needed. The chunk index of a data set is read once.
//	       Decoded rows are kept in a Cache with a budget in bytes, which any number of files
//	       share. Chunks are decoded on all cores.
//	h5.H7  Numbers are returned in little-endian order for every byte order of the file. An int64
//	       is never converted to a float.
package h5
