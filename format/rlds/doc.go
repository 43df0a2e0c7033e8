// Package rlds reads and writes RLDS data sets as TFDS prepares them (Open X-Embodiment), without
// TensorFlow.
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
//	    Info.UnusedClocks lists the time streams that the caller does not name.
//	R9  Records in memory stay below the budget. No panic leaves the package.
//	R10 What is not read is a Finding of Open and ErrUnsupported by name when asked for; it never hides the rest.
//	R11 A packed shard (gzip, zlib) is decompressed once, record by record, into a temporary file without a name, of at most so many bytes
//	    (option unpack_bytes); it goes with Close, or with the process. From then on its records are read as those of any other shard.
//	R12 Episodes that were cut off or cannot be parsed are findings that are Lost: training and conversion stop unless told to skip them.
package rlds
