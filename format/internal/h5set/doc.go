// Package h5set makes a robocache.Dataset of groups of HDF5 files: what robomimic, ALOHA and
// generic files have in common.
//
// # Contract
//
//	S1  A format names the episodes. The streams are the union of those of all episodes, each in its most common form. A data set
//	    of another type, shape or length is an error that names both, never another stream's rows. So is a stream that an episode lacks.
//	S2  Decoded chunks and rows lie in one cache of bytes; open data sets in an eighth of the budget. Plain rows are kept only where
//	    all of them fit, else they are read past the cache.
//	S3  At most 64 files are open at once. A file that changed between two openings is an error.
//	S4  Pixels that are leased and lie in the cache are not copied: FrameRef.Raw shows the decoded chunk itself. What Frames gives is the caller's.
//	S5  A rate that nobody said is ErrMisuse when timestamps are asked for, and names --rows-hz.
package h5set
