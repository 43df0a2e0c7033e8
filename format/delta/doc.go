// Package delta reads Delta Lake tables of rows as datasets, and writes datasets as such tables.
//
// # Contract
//
//	D1  A version of a table is the log replayed from its last checkpoint. What this reader does not follow is refused by name (ErrUnsupported):
//	    reader protocols above 3 and reader features, column mapping, deletion vectors, files that lie outside of the table.
//	D2  The rows of one episode_index, in the order of frame_index, are an episode. A row that is there twice begins another episode of that number, with a finding.
//	D3  Write makes a version by one conditional put of its commit, never by another one. A writer that lost reads the log again: rows that were
//	    appended meanwhile stay, and its own episodes are numbered behind them; another schema or protocol ends it (ErrTemporary).
//	D4  Files of a table have the schema of its metaData alone, without the partition column; numbers keep their values. What reading needs besides (shape, dtype,
//	    units) stands in the metadata of each field, under "robocache".
//	D5  Frames of video are referred to: the file below the table, the frame's number, its packet's place, the file's SHA-256. Files are named by their
//	    contents, so that shards and versions share them.
//	    The column robocache_source names, in the first row of an episode, the recording that it was made from (robocache.Origin as JSON).
//	D6  Shards of one plan give the same bytes, the commit's too: in it are no times and no chance.
package delta
