// Package h5set implements a robocache.Dataset over groups of HDF5 files. The formats robomimic,
// ALOHA and generic HDF5 use it.
//
// # Contract
//
//	h5set.S1  The format names the episodes. The streams are the union of the streams of all
//	          episodes, each in its most common form. A data set of another type, shape or length
//	          is an error that names both, never rows of another stream. A stream that an episode
//	          lacks is an error too.
//	h5set.S2  Decoded chunks and rows share one cache with a budget in bytes. Open data sets take
//	          at most an eighth of the budget. Rows without filters are cached only if all of them
//	          fit. Otherwise each read fetches them from the file.
//	h5set.S3  At most 64 files are open at once. A file that changed between two openings is an
//	          error.
//	h5set.S4  Leased pixels in the cache are not copied: FrameRef.Raw refers to the decoded chunk
//	          itself. The caller owns the result of Frames.
//	h5set.S5  If no rate is known, a request for timestamps is ErrMisuse, and the error names
//	          --rows-hz.
package h5set
