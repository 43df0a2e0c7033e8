package main

/*
#include <stdint.h>
#include <stdlib.h>
#include "batch.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/cli"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/selftest"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
	_ "github.com/goatnote-inc/robocache/video/nvdec"
)

// abiVersion is compared by the client when it loads the library (C7).
const abiVersion = 5

// version is set by the linker: -X main.version=….
var version = "unknown"

func main() {}

func init() { robocache.SetWords(robocache.PythonWords) }

// served are the calls that robocache.h declares by ROBOCACHE_CALL, but for robocache_wait.
var served = map[string]handler{
	"robocache_versions": serve(
		func(context, *none) (any, error) { return versions(), nil },
	),
	"robocache_backends": serve(
		func(context, *none) (any, error) { return backends(), nil },
	),
	"robocache_self_test": serve(
		func(ctx context, _ *none) (any, error) { return selftest.Run(ctx), nil },
	),
	"robocache_verb":      serve(verb),
	"robocache_edit":      serve(editing),
	"robocache_close":     closeHandle,
	"robocache_open":      serve(open),
	"robocache_episode":   on((*shared).episode),
	"robocache_episodes":  on((*shared).episodes),
	"robocache_stats":     on((*shared).stats),
	"robocache_deal":      on((*shared).deal),
	"robocache_stream":    on((*shared).stream),
	"robocache_align":     on((*shared).align),
	"robocache_map_new":   newMap,
	"robocache_map_items": on((*mapHandle).items),
	"robocache_map_stats": on(
		func(m *mapHandle, _ context, _ *none) (any, error) { return m.m.Stats(), nil },
	),
	"robocache_loader_new":       newLoader,
	"robocache_loader_state":     on((*loaderHandle).state),
	"robocache_loader_restore":   on((*loaderHandle).restore),
	"robocache_loader_set_epoch": on((*loaderHandle).setEpoch),
	"robocache_loader_order":     on((*loaderHandle).order),
	"robocache_loader_locate":    on((*loaderHandle).locate),
	"robocache_loader_finish":    on((*loaderHandle).finish),
	"robocache_loader_stats":     on((*loaderHandle).stats),
	"robocache_op_new":           serve(newOp),
	"robocache_writer_new":       serve(newWriter),
	"robocache_writer_save":      alone((*write.Recorder).SaveEpisode),
	"robocache_writer_discard": alone(
		func(r *write.Recorder, _ context) error { r.Discard(); return nil },
	),
	"robocache_writer_delete": alone((*write.Recorder).DeleteLastEpisode),
	"robocache_writer_stats":  alone(func(*write.Recorder, context) error { return nil }),
	"robocache_writer_finish": alone((*write.Recorder).Close),
}

// robocacheServe is what batch.c calls for each of them: their bodies differ by their names alone.
//
//export robocacheServe
func robocacheServe(
	name *C.char,
	handle C.int64_t,
	in *C.char,
	timeoutMS C.int32_t,
	ticket *C.int64_t,
	out **C.char,
) (status C.int32_t) {
	err := border(func() error {
		var c *call
		if called := C.GoString(name); called != "robocache_wait" {
			servedValue, err := served[called](int64(handle), []byte(C.GoString(in)))
			if err != nil {
				return err
			}
			c = start(servedValue)
		} else if c = calls.remove(int64(*ticket)); c == nil {
			return misuse("wait", "no call with this ticket is running")
		}
		status = finish(c, timeoutMS, ticket, out)
		return nil
	})
	if err != nil {
		return fail(out, err)
	}
	return status
}

//export robocache_abi_version
func robocache_abi_version() C.int32_t { return abiVersion }

//export robocache_free
func robocache_free(p *C.char) { C.free(unsafe.Pointer(p)) }

// robocache_cancel gives up a call that robocache_wait would have waited for. It does not wait for
// its end.
//
//export robocache_cancel
func robocache_cancel(ticket C.int64_t) {
	if c := calls.remove(int64(ticket)); c != nil {
		c.abandon()
	}
}

// robocache_interrupt cancels a call whose end robocache_wait tells: work that leaves a place clean
// needs the time for it.
//
//export robocache_interrupt
func robocache_interrupt(ticket C.int64_t) {
	if c, ok := calls.get(int64(ticket)); ok {
		c.cancel()
	}
}

// closeHandle closes a dataset, map, loader or op. It waits until the goroutines of a loader are
// gone.
func closeHandle(handle int64, _ []byte) (work, error) {
	obj := handles.remove(handle)
	if obj == nil {
		return nil, misuse("close", "the handle is closed or was never given")
	}
	return func(context) (any, error) {
		if err := obj.close(); err != nil {
			return nil, err
		}
		return nil, nil
	}, nil
}

type versionsReply struct {
	Version string `json:"robocache"`
	// commit of the source, or "" when the build did not record it
	Commit  string   `json:"commit,omitempty"`
	ABI     int      `json:"abi"`
	Go      string   `json:"go"`
	Formats []string `json:"formats"`
	Decoder string   `json:"decoder,omitempty"`
	Missing string   `json:"decoder_missing,omitempty"`
	Codecs  []string `json:"codecs"`
	Threads int      `json:"threads"`
}

func versions() versionsReply {
	v := versionsReply{
		Version: robocache.Version,
		ABI:     abiVersion,
		Go:      runtime.Version(),
		Formats: robocache.Formats(),
		Codecs:  []string{},
		Threads: runtime.GOMAXPROCS(0),
	}
	if version != robocache.Version && version != "unknown" {
		v.Commit = version
	}
	b, err := video.ActiveBackend()
	if err != nil {
		v.Missing = err.Error()
		return v
	}
	v.Decoder = b.Name() + " " + b.Version()
	for _, c := range []video.Codec{video.AV1, video.H264, video.HEVC, video.MPEG4, video.VP9, video.MJPEG} {
		if b.Supports(c) == nil {
			v.Codecs = append(v.Codecs, string(c))
		}
	}
	return v
}

type backendsReply struct {
	CPU struct {
		Instructions string `json:"instructions"`
		Threads      int    `json:"threads"`
	} `json:"cpu"`
	CUDA struct {
		Driver  string   `json:"driver,omitempty"` // the CUDA version that it speaks
		Devices []string `json:"devices"`          // names of those that the kernels load on
		Reason  string   `json:"reason,omitempty"` // why there is none, or not all
	} `json:"cuda"`
}

// backends says which back ends the kernels have here. It opens every CUDA device.
func backends() (r backendsReply) {
	r.CPU.Instructions, r.CPU.Threads = cores().Instructions(), cores().Threads()
	r.CUDA.Devices = []string{}
	n, err := cuda.Count()
	for i := 0; i < n && err == nil; i++ {
		var d *cuda.Device
		if d, err = cuda.Open(i); err == nil {
			r.CUDA.Driver = cudahost.VersionText(d.Driver())
			r.CUDA.Devices = append(r.CUDA.Devices, d.Name())
		}
	}
	if err != nil {
		r.CUDA.Reason = err.Error()
	}
	return r
}

// robocache_main runs the command line on the process's own streams, with handlers of its signals,
// and gives the exit code. The process ends with it.
//
//export robocache_main
func robocache_main(argc C.int32_t, argv **C.char) C.int32_t {
	args := make([]string, argc)
	for i, a := range unsafe.Slice(argv, argc) {
		args[i] = C.GoString(a)
	}
	return C.int32_t(cli.Main(args, version))
}

// editing makes a dataset of datasets.
func editing(ctx context, r *edit.Request) (any, error) { return edit.Run(ctx, r) }
