package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// abiVersion is compared by the client when it loads the library (C7).
const abiVersion = 3

// version is set by the linker: -X main.version=….
var version = "unknown"

func main() {}

//export robocache_abi_version
func robocache_abi_version() C.int32_t { return abiVersion }

//export robocache_free
func robocache_free(p *C.char) { C.free(unsafe.Pointer(p)) }

type versionsReply struct {
	Version string   `json:"robocache"`
	ABI     int      `json:"abi"`
	Go      string   `json:"go"`
	Formats []string `json:"formats"`
	Decoder string   `json:"decoder,omitempty"`
	Missing string   `json:"decoder_missing,omitempty"`
	Codecs  []string `json:"codecs"`
	Threads int      `json:"threads"`
}

//export robocache_versions
func robocache_versions(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	return direct(out, func() (any, error) {
		v := versionsReply{Version: version, ABI: abiVersion, Go: runtime.Version(), Formats: robocache.Formats(), Codecs: []string{}, Threads: runtime.GOMAXPROCS(0)}
		b, err := video.ActiveBackend()
		if err != nil {
			v.Missing = err.Error()
			return v, nil
		}
		v.Decoder = b.Name() + " " + b.Version()
		for _, c := range []video.Codec{video.AV1, video.H264, video.HEVC, video.MPEG4, video.VP9, video.MJPEG} {
			if b.Supports(c) == nil {
				v.Codecs = append(v.Codecs, string(c))
			}
		}
		return v, nil
	})
}

//export robocache_wait
func robocache_wait(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	c := calls.take(int64(*ticket))
	if c == nil {
		return fail(out, misuse("wait", "no call with this ticket is running"))
	}
	return finish(c, timeoutMS, ticket, out)
}

// robocache_cancel gives up a call that robocache_wait would have waited for. It does not wait for its end.
//
//export robocache_cancel
func robocache_cancel(ticket C.int64_t) {
	if c := calls.take(int64(ticket)); c != nil {
		c.abandon()
	}
}

// robocache_close closes a dataset, map, loader or batch. It waits until the goroutines of a loader are gone.
//
//export robocache_close
func robocache_close(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	obj := handles.remove(int64(handle))
	if obj == nil {
		return fail(out, misuse("close", "the handle is closed or was never given"))
	}
	return invoke(timeoutMS, ticket, out, func(context) (result, error) { return result{}, obj.close() })
}
