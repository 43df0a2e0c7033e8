// Package store gives bytes by name below one root: a local folder or an http(s) server. It knows
// no format.
//
// # Contract
//
//	T1  A name never leaves the root: "..", absolute names, NUL and names over 4 KiB are refused as malformed (CleanName);
//	    links work only inside the root (OpenOptions.FollowLinks: anywhere); a link that leads nowhere or out, a FIFO, device or folder is
//	    malformed input at once, and is never opened. Only where nothing stands is a file not found. Files lists such names too.
//	T2  ReadAt fills p or fails. A range outside the file is malformed input (io.ErrUnexpectedEOF inside): offsets come from files.
//	T3  A handle is one version of a file: what it reads is that version or ErrChanged, never a mixture. Local files: replaced by
//	    rename, the old bytes stay readable; written in place, the first read begun 10 ms later reports it, at the latest Close.
//	T4  A local ReadAt is one pread and allocates nothing.
//	T5  A handle may be used by many goroutines. A context's end is returned as it is.
//	T6  What is written appears under its name at Commit, whole and durable, or not at all; a failed write, a failed Commit and
//	    Abort leave no temporary file. A killed process can leave one; Local.Sweep removes it, and List never shows it.
//	T7  CreateNew: of several writers of one name exactly one Commit succeeds; the others get ErrExists. Probe
//	    shows whether a store keeps that.
//	T8  HTTP: resets, stalls, short bodies, 408, 425, 429 and 5xx are tried again with jittered backoff, at the byte reached, inside a
//	    budget of tries and of time; Retry-After holds for the whole store; then the error is Temporary. 404 is NotFound, 401 and
//	    403 are Misuse with fs.ErrPermission inside, and are not tried again. Nothing waits for ever.
//	T9  HTTP: length, range, ETag and Last-Modified of every answer must agree with the first one: else ErrChanged.
//	T10 No query, user, password, token or redirect target appears in a URI(), an error or a %v. They go to the host that the
//	    user named, and after a redirect to no other; a redirect to a private address is refused.
//	T11 ReadFile has a limit, checked before allocating. List is sorted; a folder that is not there has no files.
//	T12 No goroutine outlives the call that started it, but for idle connections, which Close ends.
//
//	T13 CachedRanged reads each block once, also where many want it at once, and keeps none under a version that may be that of other
//	    bytes; what the cache loses, cuts or refuses is read again. Keep does so for all files of a remote store.
//
// storetest.Run (store/tests) holds every back end to T1 to T7 and T11. Other schemes are added by
// Register.
package store
