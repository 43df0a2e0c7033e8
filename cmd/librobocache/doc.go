// Command librobocache is the C library of RoboCache: what the Python client, or any other
// language, loads. It is built with -buildmode=c-shared and holds no logic of its own.
//
// # Contract
//
//	C1  Every call returns a status: 0 done, -1 still running, -2 the epoch is over, else the exit code that the CLI
//	    documents for the class of the error. The text in *out is JSON: the result, or the error. robocache_free gives it back.
//	C2  A call that can block takes a timeout in ms. Where that passes, it returns -1 and a ticket; robocache_wait goes on
//	    waiting, robocache_cancel gives up: the work is cancelled, and what it would have made is closed.
//	C3  Objects are int64 handles, never reused. A closed or unknown handle, or one of another kind, is misuse, not a crash.
//	C4  Tensors cross as DLPack. The memory belongs to a batch and stays as it is until it is given back, tensor by tensor, whatever else is
//	    closed before. Small tensors of a loader's batch go back together.
//	C5  No panic crosses the border: it becomes an error of class "internal" with its stack in the message.
//	C6  There are no callbacks and no signal handlers but those of the Go runtime (synchronous signals only).
//	C7  robocache_abi_version changes when a call changes its meaning; calls are only added within one version.
//	C8  The library must not be called in a forked child of a process that has called it: the child opens its own copy.
//	    Deleters of tensors may be called there: they do not enter Go.
//	C9  A batch of a loader counts when the client says that it arrived; one that did not is given again. Taking a batch that is
//	    finished starts no goroutine and writes no text.
//	C10 An operation is checked and prepared once and run many times, from many threads: a run copies no tensor, reads no text and, on a
//	    device, allocates and waits for nothing. Host memory is looked at during the run only.
package main
