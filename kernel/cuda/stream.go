package cuda

import (
	"sort"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

const captureRelaxed = 2

// NewStream makes a stream that does not wait for the legacy one.
func (d *Device) NewStream() (uintptr, error) { return d.on.newStream() }

// FreeStream gives a stream of NewStream back; what is on it still runs.
func (d *Device) FreeStream(s uintptr) {
	if s != 0 {
		d.on.freeStream(s)
	}
}

func (g *gpu) newStream() (uintptr, error) {
	s := new(uintptr)
	if code := g.within(func() int32 { return cudahost.Call(g.f.StreamCreate, ptr(s), 1) }); code != 0 {
		return 0, g.fail("make a stream", code)
	}
	return *s, nil
}

func (g *gpu) freeStream(s uintptr) {
	_ = g.within(func() int32 { return cudahost.Call(g.f.StreamDestroy_v2, s) })
}

// real is the device of the driver: the simulator has no time and no graphs.
func (d *Device) real() (*gpu, error) {
	if d.gpu == nil {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "CUDA", Msg: "the simulator has no events and no graphs"}
	}
	return d.gpu, nil
}

// Event is a point of a stream.
type Event struct {
	g      *gpu
	handle uintptr
}

// NewEvent makes an event that measures time.
func (d *Device) NewEvent() (*Event, error) {
	g, err := d.real()
	if err != nil {
		return nil, err
	}
	h := new(uintptr)
	if code := g.within(func() int32 { return cudahost.Call(g.f.EventCreate, ptr(h), 0) }); code != 0 {
		return nil, g.fail("make an event", code)
	}
	return &Event{g: g, handle: *h}, nil
}

// Record puts the event at the end of the stream as it is.
func (e *Event) Record(stream uintptr) error {
	if code := e.g.within(func() int32 { return cudahost.Call(e.g.f.EventRecord, e.handle, stream) }); code != 0 {
		return e.g.fail("record an event", code)
	}
	return nil
}

// Wait returns when the stream has come past the event.
func (e *Event) Wait() error {
	if code := e.g.within(func() int32 { return cudahost.Call(e.g.f.EventSynchronize, e.handle) }); code != 0 {
		return e.g.fail("wait for an event", code)
	}
	return nil
}

// Hold makes a stream go on only when the event has come.
func (e *Event) Hold(stream uintptr) error {
	if code := e.g.within(func() int32 { return cudahost.Call(e.g.f.StreamWaitEvent, stream, e.handle, 0) }); code != 0 {
		return e.g.fail("make a stream wait", code)
	}
	return nil
}

// Since is the time from another event to this one, in microseconds. Both have come.
func (e *Event) Since(from *Event) (float64, error) {
	ms := new(float32)
	if code := e.g.within(func() int32 { return cudahost.Call(e.g.f.EventElapsedTime, ptr(ms), from.handle, e.handle) }); code != 0 {
		return 0, e.g.fail("tell the time between events", code)
	}
	return float64(*ms) * 1000, nil
}

// Free gives the event back.
func (e *Event) Free() {
	_ = e.g.within(func() int32 { return cudahost.Call(e.g.f.EventDestroy_v2, e.handle) })
}

// Graph is launches that were captured and are replayed as one.
type Graph struct {
	d      *Device
	handle uintptr
	exec   uintptr
}

// Capture records what f puts on the stream, instead of running it. The stream is none of the legacy ones.
func (d *Device) Capture(stream uintptr, f func() error) (*Graph, error) {
	g, err := d.real()
	if err != nil {
		return nil, err
	}
	if code := g.within(func() int32 { return cudahost.Call(g.f.StreamBeginCapture_v2, stream, captureRelaxed) }); code != 0 {
		return nil, g.fail("begin to capture", code)
	}
	failed := f()
	words := new([2]uintptr)
	code := g.within(func() int32 { return cudahost.Call(g.f.StreamEndCapture, stream, ptr(&words[0])) })
	if failed == nil && code == 0 {
		code = g.within(func() int32 {
			return cudahost.Call(g.f.GraphInstantiateWithFlags, uintptr(unsafe.Pointer(&words[1])), words[0], 0)
		})
	}
	graph := &Graph{d: d, handle: words[0], exec: words[1]}
	if failed != nil || code != 0 {
		graph.Free()
	}
	if failed != nil {
		return nil, failed
	}
	if code != 0 {
		return nil, g.fail("make a graph", code)
	}
	return graph, nil
}

// Launch replays the graph on a stream: the same addresses, with what they hold by then.
func (gr *Graph) Launch(stream uintptr) error {
	g := gr.d.gpu
	pushed, code := g.enter()
	if code == 0 {
		code = cudahost.Call(g.f.GraphLaunch, gr.exec, stream)
	}
	g.leave(pushed)
	if code != 0 {
		return g.fail("launch a graph", code)
	}
	return nil
}

// Free gives the graph back.
func (gr *Graph) Free() {
	g := gr.d.gpu
	_ = g.within(func() int32 {
		if gr.exec != 0 {
			cudahost.Call(g.f.GraphExecDestroy, gr.exec)
		}
		if gr.handle != 0 {
			cudahost.Call(g.f.GraphDestroy, gr.handle)
		}
		return 0
	})
	gr.exec, gr.handle = 0, 0
}

// Timing is how long a call takes in a graph, in microseconds.
type Timing struct {
	Median, Best float64
	Calls        int // in one graph
	Rounds       int
}

// Time captures f called `calls` times, with i = 0, 1, 2 …, and replays the graph `rounds` times: microseconds a call. Rotating buffers by i
// through more than four times the L2 cache gives a cold figure, the same buffers a hot one.
func (d *Device) Time(calls, rounds int, f func(i int, stream uintptr) error) (Timing, error) {
	stream, err := d.NewStream()
	if err != nil {
		return Timing{}, err
	}
	defer d.FreeStream(stream)
	graph, err := d.Capture(stream, func() error {
		for i := range calls {
			if err := f(i, stream); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Timing{}, err
	}
	defer graph.Free()
	return graph.time(stream, calls, rounds)
}

func (gr *Graph) time(stream uintptr, calls, rounds int) (Timing, error) {
	var events [2]*Event
	for i := range events {
		e, err := gr.d.NewEvent()
		if err != nil {
			return Timing{}, err
		}
		defer e.Free()
		events[i] = e
	}
	var all []float64
	for round := range rounds + 2 { // two to warm up
		err := events[0].Record(stream)
		if err == nil {
			err = gr.Launch(stream)
		}
		if err == nil {
			err = events[1].Record(stream)
		}
		if err == nil {
			err = events[1].Wait()
		}
		if err != nil {
			return Timing{}, err
		}
		us, err := events[1].Since(events[0])
		if err != nil {
			return Timing{}, err
		}
		if round >= 2 {
			all = append(all, us/float64(calls))
		}
	}
	sort.Float64s(all)
	return Timing{Median: all[len(all)/2], Best: all[0], Calls: calls, Rounds: rounds}, nil
}
