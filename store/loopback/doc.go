// Package loopback implements a local file server that behaves like a remote one: it has a
// configured latency, a configured bandwidth, and counters. It is used only by benchmarks and tests
// of remote reading.
//
// # Contract
//
//	loopback.S1  The server listens only on 127.0.0.1 and serves the files below one folder.
//	             Names and links cannot leave the folder.
//	loopback.S2  Every response, also an error, is sent Latency after its request was read,
//	             however many requests are waiting.
//	loopback.S3  All bodies together are sent at BytesPerSecond at most.
//	loopback.S4  net/http implements ranges, ETag, Last-Modified, If-Match and If-Range. The ETag
//	             is made from size and time, as nginx does.
//	loopback.S5  Requests counts every request. Bytes counts every body byte that is passed to
//	             the network.
//	loopback.S6  Close closes the listener and the connections and cancels waiting requests. It
//	             blocks until all of them have ended.
package loopback
