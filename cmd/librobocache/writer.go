//go:build cgo

package main

/*
#include <stdint.h>
*/
import "C"

import (
	stdcontext "context"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

// writerHandle is a recorder. Only one call at a time uses it.
type writerHandle struct {
	users
	mu    sync.Mutex
	r     *write.Recorder
	feats []robocache.Feature
}

type writerArgs struct {
	Path       string              `json:"path"`
	FPS        robocache.Rate      `json:"fps"`
	Robot      string              `json:"robot_type"`
	Features   []robocache.Feature `json:"features"`
	Codec      string              `json:"video_codec"`
	GOP        int                 `json:"gop"`
	CRF        int                 `json:"crf"`
	Preset     string              `json:"preset"`
	QueueBytes int64               `json:"queue_bytes"`
	OnFull     write.OnFull        `json:"on_full"`
	AllowNaN   []string            `json:"allow_nan"`
	Streams    map[string]float64  `json:"streams"`
	OnlyNew    bool                `json:"only_new"`
}

type writerReply struct {
	Writer   int64               `json:"writer"`
	FPS      robocache.Rate      `json:"fps"`
	Robot    string              `json:"robot_type"`
	Features []robocache.Feature `json:"features"`
	Streams  map[string]float64  `json:"streams"`
	Counted  write.Recording     `json:"counted"`
}

func newWriter(ctx context, a *writerArgs) (any, error) {
	cfg := write.Config{
		FPS:      a.FPS,
		Robot:    a.Robot,
		Features: a.Features,
		Video:    write.VideoConfig{Codec: a.Codec, GOP: a.GOP, CRF: a.CRF, Preset: a.Preset},
	}
	opt := write.RecordOptions{
		QueueBytes: a.QueueBytes,
		OnFull:     a.OnFull,
		AllowNaN:   a.AllowNaN,
		Streams:    a.Streams,
		OnlyNew:    a.OnlyNew,
	}
	record, err := lerobot.Record(ctx, a.Path, cfg, opt)
	if err != nil {
		return nil, err
	}
	w := &writerHandle{r: record}
	w.end = func() error { w.r.Abort(); return nil }
	w.n.Store(1)
	cfg = w.r.Config()
	w.feats = cfg.Features
	return newHandle(w, func(h int64) any {
		return writerReply{h, cfg.FPS, cfg.Robot, cfg.Features, w.r.Streams(), w.r.Counted()}
	}), nil
}

// onRecorder returns the handler of a call on a recorder. Calls on the same recorder run one at a
// time.
func onRecorder(f func(r *write.Recorder, ctx context) error) handler {
	return onObject(func(w *writerHandle, ctx context, _ *noArguments) (any, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := f(w.r, ctx); err != nil {
			return nil, err
		}
		return w.r.Counted(), nil
	})
}

type frameArgs struct {
	Time  int64             `json:"time_ns"`
	Task  string            `json:"task"`
	Texts map[string]string `json:"texts"`
}

// robocache_writer_add adds a row. addrs holds the addresses of its values in the order of the
// features. It is 0 for texts, which are in json_in. The function returns statusEnd if the queue is
// full and the row was dropped.
//
//export robocache_writer_add
func robocache_writer_add(
	writer C.int64_t,
	in *C.char,
	addrs *C.int64_t,
	n C.int64_t,
	timeoutMS C.int32_t,
	out **C.char,
) (status C.int32_t) {
	added := false
	err := catchPanics(func() error {
		w, err := acquireObject[*writerHandle](int64(writer))
		if err != nil {
			return err
		}
		defer func() { _ = w.release() }()
		w.mu.Lock()
		defer w.mu.Unlock()
		var a frameArgs
		if err := decodeArguments([]byte(C.GoString(in)), &a); err != nil {
			return err
		}
		at := unsafe.Slice((*uintptr)(unsafe.Pointer(addrs)), int(n))
		if len(at) != len(w.feats) {
			return misuse("record", "another number of addresses than of features")
		}
		rows := make([][]byte, len(at))
		for i := range at {
			if at[i] != 0 {
				rows[i] = unsafe.Slice((*byte)(clientPointer(at[i])), write.GivenBytes(&w.feats[i]))
			}
		}
		ctx, cancel := stdcontext.WithTimeout(
			stdcontext.Background(),
			time.Duration(timeoutMS)*time.Millisecond,
		)
		defer cancel()
		if added, err = w.r.AddFrame(ctx, a.Task, a.Time, rows, a.Texts); err != nil {
			return err
		}
		return nil
	})
	switch {
	case err == nil && added:
		return statusDone
	case err == nil:
		return statusEnd
	case errors.Is(err, stdcontext.DeadlineExceeded):
		return statusPending
	}
	return writeFailure(out, err)
}

// robocache_writer_sample adds a sample of a stream with a native clock: the address of its value,
// and its time.
//
//export robocache_writer_sample
func robocache_writer_sample(
	writer C.int64_t,
	key *C.char,
	addr C.int64_t,
	timeNS C.int64_t,
	out **C.char,
) (status C.int32_t) {
	err := catchPanics(func() error {
		w, err := acquireObject[*writerHandle](int64(writer))
		if err != nil {
			return err
		}
		defer func() { _ = w.release() }()
		w.mu.Lock()
		defer w.mu.Unlock()
		name := C.GoString(key)
		for i := range w.feats {
			if f := &w.feats[i]; f.Key == name {
				if err := w.r.AddSample(name, int64(timeNS),
					unsafe.Slice((*byte)(clientPointer(uintptr(addr))), f.RowBytes())); err != nil {
					return err
				}
				return nil
			}
		}
		return misuse("record", "no such feature: "+name)
	})
	if err != nil {
		return writeFailure(out, err)
	}
	return statusDone
}
