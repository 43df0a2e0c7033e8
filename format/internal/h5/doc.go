// Package h5 reads HDF5 files: what libhdf5 1.0 to 2.0 writes, without libhdf5, ranged and by many
// goroutines at once.
//
// # Contract
//
//	H1  What libhdf5 writes is read: superblocks 0 to 3, object headers 1 and 2, symbol tables, compact and dense
//	    links and attributes, layouts 1 to 5 with all six indexes of chunks, deflate, shuffle, fletcher32 and lzf.
//	H2  What is not read is ErrUnsupported by name: other filters, virtual data sets, external storage and links, shared message
//	    tables, filtered heaps, several-part files.
//	H3  A size that a file claims is compared with the file, the caps of file.go and the ratio of deflate before memory is taken.
//	    Trees and chains of blocks visit no place twice: a circle is ErrMalformed, never a hang.
//	H4  Checksums of metadata and fletcher32 are verified. A list is whole or an error, never shorter.
//	H5  Soft links are followed, 16 at most on the way; what dangles is ErrNotFound.
//	H6  Nothing is read before it is asked for. The index of a data set's chunks is read once. Decoded rows lie in a Cache of bytes that
//	    any number of files share; chunks are decoded on all cores.
//	H7  Numbers come little-endian whatever the file's order; int64 never passes through a float.
package h5
