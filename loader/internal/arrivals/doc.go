// Package arrivals keeps the log of the episodes of a growing dataset, and selects the episodes of
// an epoch from it.
//
// # Contract
//
//	arrivals.C1  A log is append-only. A record is one line: a checksum, a space and JSON. Records
//	             are synced to the disk before Append and Decide return.
//	arrivals.C2  An episode is recorded once, when it is complete, with its identity, its rows, its
//	             time of arrival, the result of the rule's expression and its policy version.
//	arrivals.C3  A boundary record states how many arrivals an epoch of a run sees. The first record
//	             of a run and an epoch is the only one that counts. Rank 0 writes it; all other
//	             ranks wait for it.
//	arrivals.C4  The episodes of an epoch and their weights are a pure function of the rule and of the
//	             arrivals before the boundary (Rule.Select). Later arrivals do not change them.
//	arrivals.C5  A writer that was killed leaves at most one incomplete line at the end. Readers
//	             ignore it and the next writer removes it. A damaged line before the end is an error.
//	arrivals.C6  Processes may read a log while another one appends. Writers exclude each other by a
//	             lock of the file.
//	arrivals.C7  Digest identifies a prefix of the arrivals. Logs of other datasets, and logs that
//	             were written again, have other digests.
//	arrivals.C8  A dataset is compared with its log at each boundary. An episode that is gone, or
//	             whose rows or file changed since its arrival, is an error. An episode that is not
//	             complete waits until it is.
//
// Intuitively, the log turns a dataset that changes into a sequence of datasets that do not. An epoch
// reads the dataset as it was at its boundary, however long the log is by then. That is why a loader
// that continues from a state delivers what the first one would have delivered.
package arrivals
