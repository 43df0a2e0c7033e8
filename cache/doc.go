// Package cache stores blobs by key in a directory on disk. Data that was decoded or downloaded
// once is mapped by later reads of this process, other processes of the node, and later runs.
//
// # Layout
//
// The directory holds a marker file (robocache-cache.json) with a random id, and shards named
// robocache-ID-SHARD.shard. One process writes a shard under the name robocache-ID-SHARD.open and
// holds a lock (flock) on it. Sealing a shard appends a table of its entries, calls fsync and
// renames the file. A sealed shard never changes. Each entry begins at a multiple of 64 bytes with
// its own header, so that another process can seal the shard of a killed writer.
//
// The folder "derived" holds the values of derived streams, which the Python package writes. Only
// List and Prune count them.
//
// # Contract
//
//	cache.C1   Get returns the bytes that were Put under the key, or nothing. The first Get of an
//	           entry in a process verifies its checksum (XXH3, 64 bits). A damaged entry is
//	           dropped and counted, and its shard is the first to be evicted.
//	cache.C2   Sizes and offsets in a file are checked against the file's size before use. A size
//	           in a file never causes an allocation larger than a table that fits into the file.
//	cache.C3   Entries that this process wrote can be read at once. Sealed shards of other
//	           processes appear within one second on a miss, within five seconds on a hit, or at
//	           Refresh.
//	cache.C4   Only files that this cache made are removed. Such a file is a regular file whose
//	           name and first record contain the id of the marker. A directory that holds other
//	           files and no marker is rejected. Links are not followed.
//	cache.C5   The files of all processes together stay within the budget; an unsealed shard
//	           counts with its maximum size. A reserve of free space is left on the file system.
//	           Open evicts shards if the budget is smaller than the existing files.
//	cache.C6   Whole shards are evicted, the least recently used first. Use by other processes is
//	           known with a delay of ten seconds. A mapping lives until the last Release, so
//	           eviction never removes bytes that are being read.
//	cache.C7   With KeepUsed, entries written or read since Open are never evicted. If data
//	           larger than the budget is read in passes, the hit rate is then the ratio of budget
//	           to data. Evicting the least recently used shard would never hit.
//	cache.C8   A process may be killed at any moment without causing wrong bytes later. Its
//	           unsealed shards are sealed or removed by the next Open, or by the next writer that
//	           needs space, after their lock is released.
//	cache.C9   Open returns a typed error if the directory cannot be used: it is read-only, full
//	           or not a directory, has no locks, or a limit of the process is too low. A write
//	           that fails later stops all writing. One Put returns the error, Stats reports it,
//	           and reads continue.
//	cache.C10  Get, Has and Put are safe for concurrent use. No lock is held while bytes are
//	           read, hashed or written.
//	cache.C11  Mapped pages count as memory of the process up to Options.Resident. Pages beyond
//	           that are unmapped from the process and stay in the page cache.
//	cache.C12  No goroutine outlives Close. At most four files are open, plus the shards that are
//	           being sealed. Mapped shards need no open file.
//
// # Cost
//
// An entry takes about 100 bytes of memory. A Get is a map lookup and a check that the pages are in
// memory (mincore). Missing pages are read by a system call, because a page fault that waits for a
// disk would block one of Go's processors. The first Get of an entry also hashes it with XXH3 at
// memory speed.
package cache
