// Package store reads and writes bytes by name below a root, such as a local folder or an http(s)
// server. It is independent of dataset formats.
//
// # Contract
//
//	store.T1   A name never leaves the root. "..", absolute names, NUL and names over 4 KiB are
//	           rejected as malformed (CleanName). Links are followed only inside the root, unless
//	           OpenOptions.FollowLinks is set. A link that is dangling or leaves the root, a
//	           FIFO, a device and a folder are rejected as malformed without opening them.
//	           NotFound means that nothing has the name. Files also lists such names.
//	store.T2   ReadAt fills p or returns an error. A range outside the file is malformed input
//	           that wraps io.ErrUnexpectedEOF, because offsets come from files.
//	store.T3   A handle reads one version of a file, or returns ErrChanged, but never a mixture.
//	           If a local file is replaced by a rename, the old bytes stay readable. If it is
//	           written in place, the first read that starts 10 ms later reports it, or Close at
//	           the latest.
//	store.T4   A local ReadAt is one pread and allocates nothing.
//	store.T5   Handles are safe for concurrent use. Errors of a context are returned unchanged.
//	store.T6   A written file appears under its name at Commit, complete and durable, or not at
//	           all. A failed write, a failed Commit and Abort leave no temporary file. A killed
//	           process may leave one; Local.Sweep removes it, and List never shows it.
//	store.T7   If several writers use CreateNew with one name, exactly one Commit succeeds, and
//	           the others return ErrExists. Probe tests whether a store guarantees this.
//	store.T8   HTTP retries resets, stalls, short bodies, 408, 425, 429 and 5xx with jittered
//	           backoff. It continues at the current byte, within a limit of attempts and time.
//	           Retry-After holds back the whole store. If the limit is reached, the error is
//	           Temporary. 404 is NotFound. 401 and 403 are Misuse, wrap fs.ErrPermission, and are
//	           not retried. No operation waits forever.
//	store.T9   HTTP compares length, range, ETag and Last-Modified of every response with the
//	           first one. If they differ, the error is ErrChanged.
//	store.T10  No query, user, password, token or redirect target appears in a URI(), an error or
//	           a %v. They are sent only to the host that the user named, and not to another host
//	           after a redirect. Redirects to private addresses are rejected.
//	store.T11  ReadFile checks its limit before it allocates. List is sorted. A missing folder
//	           has no files.
//	store.T12  No goroutine outlives the call that started it, except those of idle connections,
//	           which Close ends.
//	store.T13  CachedRanged reads each block once, even for concurrent readers. It caches no
//	           block under a version that other bytes may also have. Blocks that the cache loses,
//	           truncates or rejects are read again. Keep does the same for all files of a remote
//	           store.
//
// storetest.Run (store/tests) checks store.T1 to store.T7 and store.T11 for every back end.
// Register adds other schemes.
package store
