// Command librobocache is the C library of RoboCache. The Python client and clients in other
// languages load it. It is built with -buildmode=c-shared, and it only connects calls to the Go
// packages.
//
// # Contract
//
//	librobocache.C1   Every call returns a status: 0 means done, -1 still running, -2 end of the
//	                  epoch. Other values are the exit codes that the CLI documents for the class
//	                  of the error. The text in *out is JSON: the result or the error. The client
//	                  frees it with robocache_free.
//	librobocache.C2   A call that can block takes a timeout in ms. If the time is over, it returns
//	                  -1 and a ticket. robocache_wait continues to wait. robocache_cancel cancels
//	                  the work, and closes what the work still creates.
//	librobocache.C3   Objects are int64 handles. Handles are never reused. A handle that is
//	                  closed, unknown or of another kind is misuse, not a crash.
//	librobocache.C4   Tensors are passed as DLPack. Their memory belongs to a batch. It stays
//	                  unchanged until the client releases it, tensor by tensor, even if other
//	                  objects are closed before. Small tensors of a loader's batch share a buffer,
//	                  which is freed when all of them are released.
//	librobocache.C5   No panic crosses the border. A panic becomes an error of class "internal"
//	                  with its stack in the message.
//	librobocache.C6   There are no callbacks, and no signal handlers except those of the Go
//	                  runtime (synchronous signals only).
//	librobocache.C7   robocache_abi_version changes if the meaning of a call changes. Within one
//	                  version, calls are only added.
//	librobocache.C8   A forked child must not call a library that its parent has called. It must
//	                  open its own copy. It may call deleters of tensors, because they do not
//	                  enter Go in a child.
//	librobocache.C9   A loader's batch is acknowledged by robocache_arrived. A batch that was not
//	                  acknowledged is delivered again. Taking a batch that is ready starts no
//	                  goroutine and formats no JSON.
//	librobocache.C10  An operation is checked and prepared once, and can then run many times from
//	                  many threads. A run copies no tensor and parses no text. On a device it
//	                  allocates nothing and does not wait. Host memory is accessed only during the
//	                  run.
package main
