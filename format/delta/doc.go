// Package delta reads Delta Lake tables of rows as datasets, and writes datasets as such tables.
//
// # Contract
//
//	delta.D1  A version of a table is the log replayed from its last checkpoint. Unsupported features
//	          are rejected by name (ErrUnsupported): reader protocols above 3, reader features,
//	          column mapping, deletion vectors, and files outside of the table.
//	delta.D2  The rows with one episode_index, in the order of frame_index, are an episode. A row
//	          that occurs twice begins another episode with that number, with a finding.
//	delta.D3  Write creates a version by one conditional put of its commit. A writer that loses the
//	          race reads the log again. Rows that were appended by others stay, and the writer's own
//	          episodes get the next numbers. A changed schema or protocol is an error
//	          (ErrTemporary).
//	delta.D4  Files of a table have the schema of its metaData, without the partition column. Numbers
//	          keep their values. Other properties (shape, dtype, units) are in the metadata of each
//	          field, under "robocache".
//	delta.D5  A frame of video is a reference: file in the table, frame number, position of the
//	          packet, and SHA-256 of the file. Names of files are derived from their content, so that
//	          shards and versions share them. The column robocache_source names, in the first row of
//	          an episode, the recording that it was made from (robocache.Origin as JSON).
//	delta.D6  Shards of one plan always give the same bytes, also of the commit, which holds no time
//	          and no random value.
//
// Intuitively, a table is a set of immutable files and a log that names those of each version. A
// conditional put of the next log entry is the only synchronization between writers.
package delta
