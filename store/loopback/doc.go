// Package loopback is a file server on this machine with the manners of a distant one: a stated
// wait before each answer, a stated bandwidth, and counters. Benchmarks and tests measure remote
// reading against it; it serves nobody else.
//
// # Contract
//
//	S1  It listens on 127.0.0.1 alone, and serves the files below one folder; no name and no link leaves it.
//	S2  Every answer, errors too, comes Latency after its request was read, however many requests wait at once.
//	S3  All bodies together go out at no more than BytesPerSecond.
//	S4  Ranges, ETag, Last-Modified, If-Match and If-Range are those of net/http; the ETag is made of size and time, as nginx makes it.
//	S5  Requests and Bytes count every request, and every body byte handed to the network.
//	S6  Close ends the listener, the connections and what waits, and returns when all are over.
package loopback
