// Package zarr reads Zarr v2 and v3 stores (folders, .zip files, http with consolidated metadata)
// as datasets, and writes replay buffers.
//
// # Contract of the reader
//
//	A1  Open reads metadata and the episodes' ends alone. A store with meta/episode_ends is a replay buffer: episode i is the rows from
//	    ends[i-1] to ends[i] of each array below data/; rows beyond the last end are unused. Another store is one episode.
//	A2  An array's rows are what zarr-python gives, to the bit, little-endian: any chunk grid, order, byte order, fill value, absent chunk,
//	    shard, and the codecs of Codecs.
//	A3  An array whose type or codec is not read leaves the others open. Its type: left out, with a Finding. Its codec: the stream is
//	    listed, and reading it is Unsupported by the codec's name.
//	A4  A chunk is decoded once, whole, into a cache within the memory budget; those that one call needs are decoded at the same time.
//	    Images are pieces of a decoded chunk, without a copy.
//	A5  Timestamps are data/timestamp where it is there (seconds where it is floating, nanoseconds where it is integer), else the rate that
//	    OpenOptions.HZ or the root's attribute "fps" says; where neither does, asking for timestamps is ErrMisuse. No rate is guessed.
//	    Info.UnusedClocks lists the time arrays with a fault.
//	A6  Sizes that metadata, shard indexes and packed buffers declare are checked against the file, the budget and a ratio before memory is
//	    taken. An absent chunk costs nothing. No panic leaves the package.
//	A7  Videos beside a replay buffer (videos/<episode>/<camera>.mp4) are cameras. A row's frame has its number if the file has as many
//	    frames as the episode has rows. Otherwise it is the one within half a frame of the row's time since the first row; if a row has
//	    none, the episode is malformed before its first row. An episode without a file lacks the camera (robocache.Capabilities.Lacks).
//
// # Contract of the writer
//
//	W1  Write makes a v2 replay buffer that zarr-python reads as the same values; reading it here gives the source's streams, keys, masks,
//	    timestamps and tasks again. What it cannot hold is in WriteReport.Dropped, with a Finding that says why.
//	W2  The root's metadata are written last. A failure takes away what was written; an episode that is skipped leaves no row.
package zarr
