//go:build cgo

package main

/*
#include <stdint.h>
*/
import "C"

import (
	stdcontext "context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/loader/contract"
)

// contractText is the JSON of a contract, as an argument and as an answer. It is text, because its
// bytes are the same for equal contracts.
type contractText struct {
	Contract string `json:"contract"`
}

func contractReply(c *contract.Contract, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	b, err := c.MarshalIndent()
	return contractText{string(b)}, err
}

// parseContract checks a contract and returns it in its canonical form.
func parseContract(_ context, a *contractText) (any, error) {
	return contractReply(contract.Parse([]byte(a.Contract)))
}

// readContract returns the contract of the loader's observations.
func (l *loaderHandle) readContract(context, *noArguments) (any, error) {
	return contractReply(l.loader.Contract())
}

// checkContract returns what prevents the dataset from giving the observations of a contract.
func (s *sharedDataset) checkContract(_ context, a *contractText) (any, error) {
	c, err := contract.Parse([]byte(a.Contract))
	if err != nil {
		return nil, err
	}
	return append([]robocache.Finding{}, c.Check(s.Dataset)...), nil
}

// liveHandle is a live.Live behind a handle. Calls share it, and the last user closes it.
type liveHandle struct {
	users
	live      *live.Live
	delivered map[string]bool // keys of an observation other than masks
}

type liveArgs struct {
	contractText
	MemoryBudget int64  `json:"memory_budget"`
	Source       string `json:"source"`
	Record       string `json:"record"`
}

func openLive(ctx context, a *liveArgs) (any, error) {
	c, err := contract.Parse([]byte(a.Contract))
	if err != nil {
		return nil, err
	}
	l, err := live.Open(ctx, c, live.Config{MemoryBudget: a.MemoryBudget})
	if err != nil {
		return nil, err
	}
	h := &liveHandle{live: l, delivered: map[string]bool{}}
	for i := range c.Outputs {
		h.delivered[c.Outputs[i].Key] = true
	}
	h.end = l.Close
	h.n.Store(1)
	if a.Record != "" { // before a sample can arrive
		err = l.Record(a.Record)
	}
	if err == nil && a.Source != "" {
		err = l.Run(stdcontext.Background(), a.Source)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return newHandle(h, func(h int64) any { return map[string]any{"live": h} }), nil
}

type observeArgs struct {
	Tick    *int64  `json:"tick_ns"` // nil: now
	Timeout float64 `json:"timeout_s"`
}

type observeReply struct {
	batchReply
	Tick int64 `json:"tick_ns"`
	// Ages are those of live.Observation, in the order of the contract's streams.
	Ages []int64 `json:"ages_ns"`
}

// readObservation returns the observation at a tick: the outputs of the contract and their masks, without
// the axis of the batch.
func (h *liveHandle) readObservation(ctx context, a *observeArgs) (any, error) {
	tick := live.Now
	if a.Tick != nil {
		tick = *a.Tick
	}
	seen, err := h.live.Observe(ctx, tick, time.Duration(a.Timeout*1e9), nil)
	if err != nil {
		if seen != nil { // The recording failed.
			seen.Release()
		}
		return nil, err
	}
	v, err := buildAnswer(func(ans *answer) error {
		ans.addFields(seen.Batch, func(f *loader.Field, t *loader.Tensor) bool {
			if t != nil && !f.Ragged {
				t.Shape = t.Shape[1:]
			}
			return f.Mask || h.delivered[f.Key]
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if m, ok := v.(revocable); ok {
		m.value = observeReply{m.value.(batchReply), seen.Tick, seen.Ages}
		return m, nil
	}
	return observeReply{v.(batchReply), seen.Tick, seen.Ages}, nil
}

type taskArgs struct {
	Task string `json:"task"`
}

func (h *liveHandle) setTask(_ context, a *taskArgs) (any, error) {
	h.live.SetTask(a.Task)
	return nil, nil
}

func (h *liveHandle) beginEpisode(context, *noArguments) (any, error) { return nil, h.live.Reset() }

func (h *liveHandle) startRecording(_ context, a *struct {
	Path string `json:"path"`
},
) (any, error) {
	return nil, h.live.Record(a.Path)
}

type liveStats struct {
	Streams  map[string]live.StreamStats `json:"streams"`
	Messages int64                       `json:"messages"` // that transports have received
	Error    *failure                    `json:"error,omitempty"`
}

func (h *liveHandle) readStats(context, *noArguments) (any, error) {
	r := liveStats{Streams: h.live.Stats(), Messages: h.live.MessagesReceived()}
	if err := h.live.Err(); err != nil {
		f, _ := describeError(err)
		r.Error = &f
	}
	return r, nil
}

func (h *liveHandle) readLatency(context, *noArguments) (any, error) {
	return h.live.Latency(), nil
}

// pushWith calls push with the Live of a handle and reports its error to the client.
func pushWith(handle C.int64_t, out **C.char, push func(h *liveHandle) error) C.int32_t {
	err := catchPanics(func() error {
		h, err := acquireObject[*liveHandle](int64(handle))
		if err != nil {
			return err
		}
		defer func() { _ = h.release() }()
		return push(h)
	})
	if err != nil {
		return writeFailure(out, err)
	}
	return statusDone
}

// clientBytes returns memory of the client as bytes. They are not nil.
func clientBytes(addr C.int64_t, size C.int64_t) []byte {
	if size <= 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(clientPointer(uintptr(addr))), int(size))
}

// robocache_live_push adds a sample of a stream.
//
//export robocache_live_push
func robocache_live_push(
	handle C.int64_t,
	key *C.char,
	stampNS C.int64_t,
	arrivalNS C.int64_t,
	dtype *C.char,
	shape *C.int64_t,
	ndim C.int32_t,
	addr C.int64_t,
	size C.int64_t,
	out **C.char,
) C.int32_t {
	return pushWith(handle, out, func(h *liveHandle) error {
		v := givenValue{data: clientBytes(addr, size)}
		if dtype != nil {
			var ok bool
			if v.dtype, ok = robocache.ParseDType(C.GoString(dtype)); !ok {
				return misuse("live", "there is no dtype "+C.GoString(dtype))
			}
			v.isTensor = true
			for _, n := range unsafe.Slice((*int64)(unsafe.Pointer(shape)), int(ndim)) {
				v.shape = append(v.shape, int(n))
			}
		}
		name := C.GoString(key)
		x := live.Sample{Stamp: int64(stampNS), Arrival: int64(arrivalNS)}
		if s := h.live.Contract.Stream(name); s != nil { // Push reports an unknown stream.
			if err := v.fillSample(&x, &s.Feature); err != nil {
				return robocache.At(err, robocache.Where{"stream": name})
			}
		}
		return h.live.Push(name, &x)
	})
}

// robocache_live_push_message adds a message of a topic.
//
//export robocache_live_push_message
func robocache_live_push_message(
	handle C.int64_t,
	topic *C.char,
	stampNS C.int64_t,
	arrivalNS C.int64_t,
	addr C.int64_t,
	size C.int64_t,
	out **C.char,
) C.int32_t {
	return pushWith(handle, out, func(h *liveHandle) error {
		return h.live.PushMessage(
			C.GoString(topic), clientBytes(addr, size), int64(stampNS), int64(arrivalNS))
	})
}

// givenValue is a value of the client: a tensor, or the bytes of a text or of an encoded image.
type givenValue struct {
	isTensor bool
	dtype    robocache.DType
	shape    []int
	data     []byte
}

// fillSample sets the value of a sample. It rejects a value whose form does not fit the stream.
func (v *givenValue) fillSample(x *live.Sample, f *robocache.Feature) error {
	isCamera := f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage
	isText := f.Kind == robocache.KindText || f.Kind == robocache.KindEvent
	switch {
	case isText && !v.isTensor:
		x.Text = string(v.data)
		return nil
	case isCamera && !v.isTensor:
		x.Still = &robocache.FrameRef{Encoded: v.data}
		return nil
	case isText:
		return v.mismatchError("text")
	case !v.isTensor:
		return v.mismatchError(fmt.Sprintf("%v %v", f.DType, f.Shape))
	}
	bytes := v.dtype.Size()
	for _, n := range v.shape {
		if n < 0 || n > 1<<30 {
			return misuse("live", fmt.Sprintf("a value of the shape %v", v.shape))
		}
		if bytes *= n; bytes > 1<<40 {
			break
		}
	}
	if bytes != len(v.data) {
		return misuse("live", fmt.Sprintf("%d bytes for the shape %v", len(v.data), v.shape))
	}
	if isCamera {
		return v.fillPixels(x, f)
	}
	isScalar := len(v.shape) == 0 && slices.Equal(f.Shape, []int{1})
	fits := isScalar || slices.Equal(v.shape, f.Shape) ||
		f.Ragged() && len(v.shape) == len(f.Shape) && slices.Equal(v.shape[1:], f.Shape[1:])
	if v.dtype != f.DType || !fits {
		return v.mismatchError(fmt.Sprintf("%v %v", f.DType, f.Shape))
	}
	x.Data = v.data
	return nil
}

// fillPixels sets the image of a sample.
func (v *givenValue) fillPixels(x *live.Sample, f *robocache.Feature) error {
	channels := 1
	if len(v.shape) == 3 {
		channels = v.shape[2]
	}
	isDepth := f.DType != robocache.Uint8 || f.Depth != nil
	fits := v.dtype == robocache.Uint8 && (channels == 3 || channels == f.Channels)
	want := "uint8 (height, width, 3), or the bytes of an encoded image"
	if isDepth {
		fits = v.dtype == f.DType && channels == 1
		want = fmt.Sprintf("%v (height, width), or the bytes of an encoded image", f.DType)
	}
	if !fits || len(v.shape) < 2 || len(v.shape) > 3 {
		return v.mismatchError(want)
	}
	x.Still = &robocache.FrameRef{Raw: &robocache.Raw{
		Pix: v.data, Height: v.shape[0], Width: v.shape[1], Channels: channels, DType: v.dtype,
	}}
	return nil
}

func (v *givenValue) mismatchError(want string) error {
	got := fmt.Sprintf("%d bytes", len(v.data))
	if v.isTensor {
		shape, _ := json.Marshal(append([]int{}, v.shape...))
		got = fmt.Sprintf("%v %s", v.dtype, shape)
	}
	return robocache.Misuse("live", nil, "the value does not fit the stream").Expected(want, got)
}
