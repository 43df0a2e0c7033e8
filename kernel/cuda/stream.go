package cuda

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/internal/guard"
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
	err := g.do("make a stream", g.f.StreamCreate, ptr(s), 1)
	return *s, err
}

func (g *gpu) freeStream(s uintptr) {
	_ = g.do("give a stream back", g.f.StreamDestroy_v2, s)
}

// real is the device of the driver: the simulator has no time and no graphs.
func (d *Device) real() *gpu {
	if d.gpu == nil {
		guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "CUDA", Msg: "the simulator has no events and no graphs"})
	}
	return d.gpu
}

// Event is a point of a stream.
type Event struct {
	g      *gpu
	handle uintptr
}

// NewEvent makes an event that measures time.
func (d *Device) NewEvent() (_ *Event, err error) {
	defer guard.Into(&err)
	g := d.real()
	h := new(uintptr)
	guard.Check(g.do("make an event", g.f.EventCreate, ptr(h), 0))
	return &Event{g: g, handle: *h}, nil
}

// Record puts the event at the end of the stream as it is.
func (e *Event) Record(stream uintptr) error {
	return e.g.do("record an event", e.g.f.EventRecord, e.handle, stream)
}

// Wait returns when the stream has come past the event.
func (e *Event) Wait() error {
	return e.g.do("wait for an event", e.g.f.EventSynchronize, e.handle)
}

// Since is the time from another event to this one, in microseconds. Both have come.
func (e *Event) Since(from *Event) (float64, error) {
	ms := new(float32)
	err := e.g.do("tell the time between events", e.g.f.EventElapsedTime, ptr(ms), from.handle, e.handle)
	return float64(*ms) * 1000, err
}

// Free gives the event back.
func (e *Event) Free() {
	_ = e.g.do("give an event back", e.g.f.EventDestroy_v2, e.handle)
}

// Graph is launches that were captured and are replayed as one.
type Graph struct {
	d      *Device
	handle uintptr
	exec   uintptr
}

// Capture records what f puts on the stream, instead of running it. The stream is none of the legacy ones.
func (d *Device) Capture(stream uintptr, f func() error) (_ *Graph, err error) {
	defer guard.Into(&err)
	g := d.real()
	guard.Check(g.do("begin to capture", g.f.StreamBeginCapture_v2, stream, captureRelaxed))
	failed := f()
	words := new([2]uintptr)
	err = g.do("make a graph", g.f.StreamEndCapture, stream, ptr(&words[0]))
	if failed != nil {
		err = failed
	}
	if err == nil {
		err = g.do("make a graph", g.f.GraphInstantiateWithFlags, ptr(&words[1]), words[0], 0)
	}
	graph := &Graph{d: d, handle: words[0], exec: words[1]}
	if err != nil {
		graph.Free()
		return nil, err
	}
	return graph, nil
}

// Launch replays the graph on a stream: the same addresses, with what they hold by then.
func (gr *Graph) Launch(stream uintptr) error {
	return gr.d.gpu.do("launch a graph", gr.d.gpu.f.GraphLaunch, gr.exec, stream)
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
