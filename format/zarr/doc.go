// Package zarr reads Zarr v2 and v3 stores (folders, .zip files, http with consolidated metadata)
// as datasets, and writes replay buffers.
//
// # Contract of the reader
//
//	zarr.A1  Open reads only the metadata and the ends of the episodes. A store with
//	         meta/episode_ends is a replay buffer: episode i has the rows from ends[i-1] to
//	         ends[i] of each array below data/. Rows after the last end are unused. Any other
//	         store is one episode.
//	zarr.A2  The rows of an array equal those of zarr-python bit for bit, in little-endian order.
//	         This holds for any chunk grid, order, byte order, fill value, missing chunk, shard,
//	         and codec in Codecs.
//	zarr.A3  An unsupported array does not affect the others. If its type is not supported, the
//	         array is left out with a Finding. If its codec is not supported, the stream is
//	         listed, and a read is Unsupported with the name of the codec.
//	zarr.A4  A chunk is decoded once, as a whole, into a cache within the memory budget. The
//	         chunks of one call are decoded in parallel. Images alias a decoded chunk.
//	zarr.A5  Timestamps are those of data/timestamp if it exists: floats are seconds, integers
//	         nanoseconds. Otherwise they follow from OpenOptions.HZ or the root's attribute "fps".
//	         If neither is set, a request for timestamps is ErrMisuse. No rate is guessed.
//	         Info.UnusedClocks lists the time arrays that have a fault.
//	zarr.A6  Sizes in metadata, shard indexes and packed buffers are compared with the file, the
//	         budget and a ratio before memory is allocated. A missing chunk takes no memory. No
//	         panic leaves the package.
//	zarr.A7  Videos next to a replay buffer (videos/<episode>/<camera>.mp4) are cameras. If the
//	         file has as many frames as the episode has rows, row k shows frame k. Otherwise a row
//	         shows the frame within half a frame of its time since the first row. If a row has no
//	         such frame, the episode is malformed before its first row. An episode without a file
//	         lacks the camera (robocache.Capabilities.Lacks).
//
// # Contract of the writer
//
//	zarr.W1  Write writes a v2 replay buffer. zarr-python reads the same values from it, and this
//	         package reads the source's streams, keys, masks, timestamps and tasks. Streams that
//	         do not fit are in WriteReport.Dropped, with a Finding that contains the reason.
//	zarr.W2  The metadata of the root are written last. After a failure, everything written is
//	         removed. A skipped episode leaves no rows.
package zarr
