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
	_ "github.com/goatnote-inc/robocache/live/transport/all"
	"github.com/goatnote-inc/robocache/selftest"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
	_ "github.com/goatnote-inc/robocache/video/nvdec"
)

// abiVersion is checked by the client when it loads the library (librobocache.C7).
const abiVersion = 5

// version is set by the linker: -X main.version=….
var version = "unknown"

func main() {}

func init() { robocache.SetWords(robocache.PythonWords) }

// handlers holds the calls that robocache.h declares with ROBOCACHE_CALL, except robocache_wait.
var handlers = map[string]handler{
	"robocache_versions": withoutObject(
		func(context, *noArguments) (any, error) { return libraryVersions(), nil },
	),
	"robocache_backends": withoutObject(
		func(context, *noArguments) (any, error) { return kernelBackends(), nil },
	),
	"robocache_self_test": withoutObject(
		func(ctx context, _ *noArguments) (any, error) { return selftest.Run(ctx), nil },
	),
	"robocache_verb":      withoutObject(serveVerb),
	"robocache_edit":      withoutObject(runEdit),
	"robocache_close":     closeHandle,
	"robocache_open":      withoutObject(openDataset),
	"robocache_episode":   onObject((*sharedDataset).readEpisode),
	"robocache_episodes":  onObject((*sharedDataset).listEpisodes),
	"robocache_stats":     onObject((*sharedDataset).readStats),
	"robocache_find":      onObject((*sharedDataset).findRanges),
	"robocache_quality":   onObject((*sharedDataset).measureQuality),
	"robocache_embedded":  onObject((*sharedDataset).storeVectors),
	"robocache_deal":      onObject((*sharedDataset).dealSplit),
	"robocache_stream":    onObject((*sharedDataset).readStream),
	"robocache_align":     onObject((*sharedDataset).alignEpisode),
	"robocache_map_new":   newMap,
	"robocache_map_items": onObject((*mapHandle).readItems),
	"robocache_map_stats": onObject(
		func(m *mapHandle, _ context, _ *noArguments) (any, error) { return m.m.Stats(), nil },
	),
	"robocache_loader_new":       newLoader,
	"robocache_loader_state":     onObject((*loaderHandle).readState),
	"robocache_loader_restore":   onObject((*loaderHandle).restoreState),
	"robocache_loader_set_epoch": onObject((*loaderHandle).setEpoch),
	"robocache_loader_order":     onObject((*loaderHandle).epochOrder),
	"robocache_loader_locate":    onObject((*loaderHandle).locateSamples),
	"robocache_loader_finish":    onObject((*loaderHandle).prepareFinish),
	"robocache_loader_stats":     onObject((*loaderHandle).readStats),
	"robocache_loader_causality": onObject((*loaderHandle).readCausality),
	"robocache_loader_contract":  onObject((*loaderHandle).readContract),
	"robocache_contract_parse":   withoutObject(parseContract),
	"robocache_contract_check":   onObject((*sharedDataset).checkContract),
	"robocache_live_new":         withoutObject(openLive),
	"robocache_live_observe":     onObject((*liveHandle).readObservation),
	"robocache_live_stats":       onObject((*liveHandle).readStats),
	"robocache_live_latency":     onObject((*liveHandle).readLatency),
	"robocache_live_reset":       onObject((*liveHandle).beginEpisode),
	"robocache_live_set_task":    onObject((*liveHandle).setTask),
	"robocache_live_record":      onObject((*liveHandle).startRecording),
	"robocache_op_new":           withoutObject(newOp),
	"robocache_writer_new":       withoutObject(newWriter),
	"robocache_writer_save":      onRecorder((*write.Recorder).SaveEpisode),
	"robocache_writer_discard": onRecorder(
		func(r *write.Recorder, _ context) error { r.Discard(); return nil },
	),
	"robocache_writer_delete": onRecorder((*write.Recorder).DeleteLastEpisode),
	"robocache_writer_stats":  onRecorder(func(*write.Recorder, context) error { return nil }),
	"robocache_writer_finish": onRecorder((*write.Recorder).Close),
}

// robocacheServe runs every call declared with ROBOCACHE_CALL. The C functions in batch.c call it
// with their own names.
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
	err := catchPanics(func() error {
		var c *call
		if called := C.GoString(name); called != "robocache_wait" {
			work, err := handlers[called](int64(handle), []byte(C.GoString(in)))
			if err != nil {
				return err
			}
			c = startCall(work)
		} else if c = waitingCalls.remove(int64(*ticket)); c == nil {
			return misuse("wait", "no call with this ticket is running")
		}
		status = finishCall(c, timeoutMS, ticket, out)
		return nil
	})
	if err != nil {
		return writeFailure(out, err)
	}
	return status
}

//export robocache_abi_version
func robocache_abi_version() C.int32_t { return abiVersion }

//export robocache_free
func robocache_free(p *C.char) { C.free(unsafe.Pointer(p)) }

// robocache_cancel cancels a running call and discards its answer. It does not wait until the call
// has ended.
//
//export robocache_cancel
func robocache_cancel(ticket C.int64_t) {
	if c := waitingCalls.remove(int64(ticket)); c != nil {
		c.abandon()
	}
}

// robocache_interrupt cancels a running call. robocache_wait still waits for its end, which gives
// the call time to clean up.
//
//export robocache_interrupt
func robocache_interrupt(ticket C.int64_t) {
	if c, ok := waitingCalls.get(int64(ticket)); ok {
		c.cancel()
	}
}

// closeHandle closes a dataset, map, loader, op, writer or Live. It waits until the goroutines of a loader have
// ended.
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
	// Commit is the commit of the source, or "" if the build did not record it.
	Commit  string   `json:"commit,omitempty"`
	ABI     int      `json:"abi"`
	Go      string   `json:"go"`
	Formats []string `json:"formats"`
	Decoder string   `json:"decoder,omitempty"`
	Missing string   `json:"decoder_missing,omitempty"`
	Codecs  []string `json:"codecs"`
	Threads int      `json:"threads"`
}

func libraryVersions() versionsReply {
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
	for _, c := range []video.Codec{
		video.AV1,
		video.H264,
		video.HEVC,
		video.MPEG4,
		video.VP9,
		video.MJPEG,
	} {
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
		Driver  string   `json:"driver,omitempty"` // supported CUDA version
		Devices []string `json:"devices"`          // names of the devices on which the kernels load
		Reason  string   `json:"reason,omitempty"` // why devices are missing
	} `json:"cuda"`
}

// kernelBackends reports the kernel back ends of this machine. It opens every CUDA device.
func kernelBackends() (r backendsReply) {
	r.CPU.Instructions, r.CPU.Threads = cpuBackend().Instructions(), cpuBackend().Threads()
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

// robocache_main runs the command line on the streams of the process, with signal handlers, and
// returns the exit code. The process must end afterwards.
//
//export robocache_main
func robocache_main(argc C.int32_t, argv **C.char) C.int32_t {
	args := make([]string, argc)
	for i, a := range unsafe.Slice(argv, argc) {
		args[i] = C.GoString(a)
	}
	return C.int32_t(cli.Main(args, version))
}

// runEdit executes an edit.
func runEdit(ctx context, r *edit.Request) (any, error) { return edit.Run(ctx, r) }
