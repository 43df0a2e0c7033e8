// Package flags reads and writes the file of flagged episodes. `robocache view --flags FILE` writes
// it, and `robocache edit` reads it.
//
// # Contract
//
//	flags.F1  A file is JSON: {"robocache_flags": 1, "dataset", "fingerprint", "flags":
//	          [{"episode_index", "length", "label", "note", "rows"}]}. A plain list of episode
//	          indices, such as [3, 7], is accepted too. It has no fingerprint.
//	flags.F2  Write is atomic. The same flags give the same bytes: they are sorted by episode,
//	          then rows, then label.
//	flags.F3  The size of a file is limited before it is read. An unknown version, a negative
//	          length, and rows outside 0 ≤ from < to ≤ length are Malformed.
//	flags.F4  Check rejects a file of another dataset. Fingerprint covers the schema, the length
//	          of every episode and some values, but no path.
package flags
