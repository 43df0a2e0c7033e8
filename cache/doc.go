// Package cache keeps blobs on disk, by key, in a directory of its own: what cost a decoder or a
// network to make is mapped the next time, by this process, by its neighbours on the node, and by
// the next run.
//
// # Layout
//
// The directory holds a marker (robocache-cache.json) with a random id, and shards named
// robocache-ID-SHARD.shard. A shard is written under robocache-ID-SHARD.open by one process, which
// holds a lock on it (flock) while it lives; it is sealed by a table of its entries, fsync and
// rename, and never changes again. Every entry begins at a multiple of 64 bytes with a header of
// its own, so that an unsealed shard of a killed process can be sealed by another.
//
// # Contract
//
//	C1  Get gives the bytes that were Put under the key, or nothing. Each entry is held against its checksum (XXH3, 64 bits) at its
//	    first Get in a process; an entry that fails is dropped and counted, and its shard is the first to be evicted.
//	C2  No size or offset from a file is used before it is checked against the file's size; no size in a file takes memory beyond
//	    that of a table that fits into the file.
//	C3  An entry that this process wrote can be read at once. Sealed shards of other processes appear within a second on a miss
//	    (five on a hit), or at Refresh.
//	C4  Nothing is removed that this cache did not make: a file goes only if it is a regular file with a name that carries the id of
//	    the marker, and its head carries that id too. A directory that holds anything else and has no marker is refused. Links are not followed.
//	C5  Files of all processes stay within the budget together (an unsealed shard counts with what it may grow to), and leave the
//	    file system a reserve of free space. A budget that is smaller than what is there prunes at Open.
//	C6  Whole shards are evicted, the least recently used first; use by other processes is known to ten seconds. A mapping lives until
//	    the last Release: eviction never takes bytes from under a reader.
//	C7  With KeepUsed nothing is evicted that was written or read since Open: data larger than the budget, gone through again and
//	    again, then hits at the rate of budget to data, where least-recently-used alone can hit never.
//	C8  A process may be killed at any moment: no wrong byte is given afterwards. What it left behind is sealed or removed by the next
//	    Open or the next writer that lacks room, and only after its lock is gone.
//	C9  Open fails, typed, where the directory cannot work: read-only, full, not a directory, no locks, a limit of the process.
//	    A failing write later stops writing: one Put returns why, Stats say so, and reads go on.
//	C10 Get, Has and Put may be called from many goroutines; no lock is held while bytes are read, hashed or written.
//	C11 What is mapped counts as memory of the process up to Options.Resident; pages beyond that are let go of, and stay in the page cache.
//	C12 No goroutine outlives Close. At most four files are held open beside shards that are being sealed; mapped shards hold none.
//
// # Cost
//
// About 100 bytes of memory an entry. A Get is a map look-up, a residency check of its pages
// (mincore: a page fault that waits for a disk would hold one of Go's processors, a system call
// does not) and at first touch one pass of XXH3 at memory speed.
package cache
