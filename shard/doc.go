// Package shard does work on whole datasets in independent shards: plan, run, commit, status. It
// schedules nothing: any engine (Slurm, Kubernetes, Ray, a shell) starts Run for each shard,
// anywhere, as often as it likes.
//
// # Contract
//
//	H1  A manifest is a function of the source, the job and the number of shards: the same input gives the same bytes. It is never changed.
//	H2  Shards are balanced by weight (bytes, frames or rows): no shard weighs more than 4/3 of the least possible. Where runs of neighbouring episodes can be
//	    that even, a shard is one: the result then has the order of the source, and episodes that share a file stay together. Else
//	    each episode, the heaviest first, goes to the lightest shard (LPT).
//	H3  Run refuses a source that is not the one that was planned (ErrMalformed): names, sizes, and ETags or, of local files, a fingerprint of
//	    the content. Times of modification take no part.
//	H4  All that an attempt writes lies in _staging/<shard>/<attempt>, until one conditional put of _receipts/<shard>.json makes it the shard's. Of several attempts, at
//	    once or one after the other, one is named by the receipt, and brings its files to their places; the files of the others are garbage (GC). It brings
//	    none once a commit of a part began, which may not have seen its receipt. Where there is a receipt, Run does nothing.
//	H5  Commit refuses while shards are missing, unless a part is asked for. Which shards the result is made of, the first commit settles by a conditional put. Files of the receipts that their attempts did not bring to their places it moves there, and it
//	    writes what stands above them; one conditional put makes the result one. Killed at any moment it can be run again, and gives the same bytes.
//	H6  A shard's files do not depend on attempt, host, number of threads or the order in which shards ran. Nothing is lost, nothing is there twice.
//	H7  A manifest or a receipt from a stranger cannot write outside the destination: names are checked, and every file is reached through the store.
//	H8  Status and Commit read receipts and notes of attempts alone: no clock of a scheduler, no lock, no lease.
//
// # Below the destination
//
//	_staging/<shard>/<attempt>/…     files of an attempt
//	_staging/<shard>/<attempt>.json  its note: running, with its progress, or failed, with its error
//	_receipts/<shard>.json           what the shard is made of
//	_receipts/missing.json           the shards that the result is without: of the first commit
//	_commit.json                     what was committed
package shard
