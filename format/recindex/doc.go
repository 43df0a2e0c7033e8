// Package recindex stores what opening reads from each recording of a dataset in one file, so that
// a dataset of many recordings opens without reading them. Formats decide what they store.
//
// # Contract
//
//	ix.C1   An index is one file, Name at the root of a dataset or any other path. It is a log:
//	        records are appended, each with its length and a checksum.
//	ix.C2   A record of a file has the name of the recording, its size, its version (size and
//	        modification time, ETag or generation), and a payload that only the format understands.
//	        The first byte of a payload is the version of its encoding.
//	ix.C3   The newest record of a recording counts. A removal is a record too. Sequence numbers
//	        increase by one for each record of a recording, also across a compaction.
//	ix.C4   Reading stops at the first record that is cut off, has a wrong checksum or breaks the
//	        format. The records before it count. The next writer removes the rest.
//	ix.C5   A payload is used only if the name, the size and the version of the listing equal those
//	        of its record. All other recordings are read as without an index.
//	ix.C6   A dataset that was opened with an index has the same rows, frames and findings as one
//	        that was opened without it. It may have the additional finding index-behind.
//	ix.C7   A recording that is opened later must have the topics and the counts, or the version,
//	        of its payload. Otherwise the read is an error, never the rows of another recording.
//	ix.C8   A local file that was modified less than settleTime before it was read is not recorded,
//	        because another write may leave its version unchanged.
//	ix.C9   Opening a dataset never writes. Update opens it, and appends the recordings that it had
//	        to read. A recording that cannot be opened has no record.
//	ix.C10  Writers of a local index hold a lock on the file (flock) while they append. A killed
//	        writer leaves at most a cut record. In a bucket, a writer replaces the whole object; of
//	        two writers at once the last one counts, and the other's recordings are read again.
//	ix.C11  Equal byte strings (schemas, layouts) are stored once, in shared blocks, which stand
//	        before the records that use them.
//	ix.C12  Parsing allocates at most a constant factor of the size of the file, whatever the file
//	        contains, and never panics. A payload that its format cannot decode is ignored.
//	ix.C13  If less than half of the bytes of a log count, the next writer compacts it: it writes
//	        a new file and renames it. The identity of the log, the sequence numbers and the
//	        removals stay.
//	ix.C14  Changes returns the newest record of each recording after a position, in the order of
//	        the log. Another identity of the log is an error.
//
// Intuitively, an index is a cache of headers with the version of each file as its key. Deleting it
// is always safe.
package recindex
