// Package rlds reads and writes RLDS datasets as TFDS prepares them (Open X-Embodiment), without
// TensorFlow.
//
// # Contract
//
//	rlds.R1  Open reads dataset_info.json, features.json and the heads of every record: lengths,
//	         number of steps and task, but no images. The index of each version of a shard is cached
//	         for the process, so opening again reads no shard.
//	rlds.R2  A record is an episode, in the order of splits, shards and records. A missing or damaged
//	         shard is a finding. The other episodes have positions without gaps, and Episode.Index
//	         counts what dataset_info.json states.
//	rlds.R3  No value is delivered before the CRC-32C of its record was verified, once per load.
//	         Evicted records keep their values without images while memory allows. Their images are
//	         then read individually, from the same version of the file. The CRC of a length is
//	         verified before the length is used, and the length is checked against the file and the
//	         budget before memory is allocated.
//	rlds.R4  The number of steps comes from is_first, or from another number or text with a fixed
//	         size per step, never from images. Every key must hold steps × elements values.
//	         Otherwise the episode is malformed, with key, expected and found.
//	rlds.R5  Gather returns the declared dtype. float64 has the precision of float32, integers are
//	         checked for range, and uint64 is cast bit by bit.
//	rlds.R6  Images are returned as they are encoded. Float32 images (depth) are returned as pixels.
//	rlds.R7  Values of the episode (episode_metadata) are streams that repeat for each step, marked
//	         Default.
//	rlds.R8  RLDS has no clock. Timestamps are k/rate, or come from a stream. The rate is that of HZ,
//	         the mapping, our writer, or the table of Open X. Info.UnusedClocks lists time streams
//	         that the caller does not name.
//	rlds.R9  Records in memory stay below the budget. No panic leaves the package.
//	rlds.R10 An unsupported feature is a finding of Open, and ErrUnsupported by name when requested.
//	         The other streams can be read.
//	rlds.R11 A packed shard (gzip, zlib) is decompressed once, record by record, into a temporary
//	         file without a name, of at most unpack_bytes (an option). The file disappears with Close
//	         or with the process. Its records are read like those of other shards.
//	rlds.R12 Episodes that were cut off or cannot be parsed are findings with Lost set. Training and
//	         conversion stop unless they are told to skip them.
//
// Intuitively, the index locates every record without reading images, and a record is verified as a
// whole before any of its values is used.
package rlds
