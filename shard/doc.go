// Package shard processes whole datasets in independent shards: plan, run, commit, status. It does
// not schedule. Any engine (Slurm, Kubernetes, Ray, a shell) calls Run for each shard, on any
// machine and any number of times.
//
// # Contract
//
//	shard.H1  A manifest is a function of the source, the job and the number of shards. The same
//	          input yields the same bytes. A manifest never changes.
//	shard.H2  Shards are balanced by weight (bytes, frames or rows). No shard weighs more than
//	          4/3 of the minimum. If neighboring episodes can be grouped that evenly, each shard
//	          is such a group. The result then has the order of the source, and episodes that
//	          share a file stay together. Otherwise each episode, heaviest first, is assigned to
//	          the lightest shard (LPT).
//	shard.H3  Run rejects a source that differs from the planned one (ErrMalformed). It compares
//	          names, sizes, and ETags or, for local files, a fingerprint of the content.
//	          Modification times are ignored.
//	shard.H4  An attempt writes only to _staging/<shard>/<attempt>. One conditional put of
//	          _receipts/<shard>.json makes its files those of the shard. Of several attempts,
//	          concurrent or not, the receipt names one. That attempt moves its files to their
//	          final names; the files of the others are garbage (GC). It moves no file after a
//	          partial commit began, because that commit may not have read its receipt. If a
//	          receipt exists, Run does nothing.
//	shard.H5  Commit returns an error if shards are missing, unless a partial commit is
//	          requested. The first commit determines the shards of the result with a conditional
//	          put. Commit moves the files that attempts did not move, and writes the files above
//	          the shards. One conditional put completes the result. A commit that is killed at
//	          any moment can be repeated and yields the same bytes.
//	shard.H6  A shard's files do not depend on the attempt, the host, the number of threads, or
//	          the order of shards. No data is lost or duplicated.
//	shard.H7  A manifest or receipt from an untrusted source cannot write outside the
//	          destination. Names are checked, and every file is accessed through the store.
//	shard.H8  Status and Commit read only receipts and notes of attempts. They need no scheduler,
//	          lock or lease.
//
// # Files in the destination
//
//	_staging/<shard>/<attempt>/…     files of an attempt
//	_staging/<shard>/<attempt>.json  its note: running with its progress, or failed with its error
//	_receipts/<shard>.json           the files of the shard
//	_receipts/missing.json           shards that the result omits, as the first commit determined
//	_commit.json                     the committed result
package shard
