// Package flags is the file of flagged episodes: `robocache view --flags FILE` writes it,
// `robocache edit` reads it.
//
// # Contract
//
//	F1  A file is JSON: {"robocache_flags": 1, "dataset", "fingerprint", "flags": [{"episode_index", "length", "label", "note", "rows"}]}. A plain list of
//	    episode indexes, [3, 7], is read too: it has no fingerprint.
//	F2  Write is atomic, and gives the same bytes for the same flags: they are in the order of episode, then rows, then label.
//	F3  A file is bounded in bytes before it is read; an unknown version, a length below 0, and rows that are not 0 ≤ from < to ≤ length are Malformed.
//	F4  Check refuses a file of another dataset: Fingerprint is over the schema, the length of every episode and some values, and over no path.
package flags
