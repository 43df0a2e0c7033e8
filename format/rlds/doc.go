// Package rlds reads and writes RLDS data sets as TFDS prepares them (Open X-Embodiment), without TensorFlow.
//
// # Contract
//
//	R1  Open reads dataset_info.json, features.json and the heads of every record: lengths, number of steps, task; no images. What
//	    it found of a version of a shard is kept for the process; opening again reads no shard.
//	R2  A record is an episode, in the order of splits, shards and records. A missing or damaged shard is a Finding; the others
//	    are numbered without gaps (Position), and Episode.Index counts what dataset_info.json promises.
//	R3  No value is served before its record's CRC-32C held, once a load. Of a record that was let go all but the images stays as long as there
//	    is room, and images are then read by the piece, of the same version of the file. The length's CRC is checked before the length is believed, and the
//	    length against the file and the budget before memory is taken.
//	R4  The number of steps comes from is_first or any other number or text of one fixed size a step, never from images. Every key
//	    must hold steps × elements values, else the episode is Malformed, with key, expected and found.
//	R5  Gather gives the declared dtype: float64 is what float32 holds, integers are checked for range, uint64 is cast bit by bit.
//	R6  Images are given as they are encoded, but float32 ones (depth) as Raw pixels.
//	R7  Values of the episode (episode_metadata) are streams that repeat for each step, marked Default.
//	R8  RLDS keeps no clock: timestamps are k/rate, by HZ, the mapping, what our writer noted, or the table of Open X; or a stream of timestamps.
//	R9  Records in memory stay below the budget. No panic leaves the package.
//	R11 A packed shard (gzip, zlib) is indexed in one pass that notes marks; a record costs what lies between it and the mark before it, and a pass in
//	    order decompresses the shard once. From a mark on a record's own check sum is what holds it. The marks of all shards share a quarter
//	    of the index's room.
//	R10 What is not read is a Finding of Open and ErrUnsupported by name when asked for; it never hides the rest.
package rlds
