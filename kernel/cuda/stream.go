package cuda

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

const (
	captureRelaxed   = 2
	eventWithoutTime = 2 // CU_EVENT_DISABLE_TIMING
	// -100: the driver takes its least number, a few below 0, for one below that
	mostUrgent = ^uintptr(0) - 99
)

// NewStream makes a stream that does not wait for the legacy one.
func (d *Device) NewStream() (uintptr, error) { return d.on.newStream() }

// NewUrgentStream makes a stream whose kernels come before those of others that are not running
// yet: small work that a network's large kernels would keep waiting at each step.
func (d *Device) NewUrgentStream() (uintptr, error) {
	s := new(uintptr)
	err := d.gpu.do("make a stream", d.gpu.f.StreamCreateWithPriority, ptr(s), 1, mostUrgent)
	return *s, err
}

// FreeStream gives a stream of NewStream or NewUrgentStream back; what is on it still runs.
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

// NewEvent makes a mark that can be put on streams.
func (d *Device) NewEvent() (uintptr, error) {
	e := new(uintptr)
	err := d.gpu.do("make an event", d.gpu.f.EventCreate, ptr(e), eventWithoutTime)
	return *e, err
}

// FreeEvent gives an event of NewEvent back.
func (d *Device) FreeEvent(e uintptr) {
	_ = d.gpu.do("give an event back", d.gpu.f.EventDestroy_v2, e)
}

// Record puts an event behind what is on a stream.
func (d *Device) Record(e, stream uintptr) error {
	return d.gpu.do("record an event", d.gpu.f.EventRecord, e, stream)
}

// Reached says whether all that was before an event is done, with its error.
func (d *Device) Reached(e uintptr) (bool, error) {
	code := d.gpu.within(func() int32 { return cudahost.Call(d.gpu.f.EventQuery, e) })
	if code != 0 && code != notReady {
		return false, d.gpu.fail("reach an event", code)
	}
	return code == 0, nil
}

// real is the device of the driver: the simulator has no time and no graphs.
func (d *Device) real() (*gpu, error) {
	if d.gpu == nil {
		return nil, robocache.Unsupported("CUDA", nil, "the simulator has no events and no graphs")
	}
	return d.gpu, nil
}

// Elapsed is how long what f puts on a stream takes there, by the device's clock, in microseconds.
// It waits for its end.
func (d *Device) Elapsed(stream uintptr, f func() error) (us float64, err error) {
	g, err := d.real()
	if err != nil {
		return us, err
	}
	events, ms := new([2]uintptr), new(float32) // from, to
	for i := range events {
		if err := g.do("make an event", g.f.EventCreate, ptr(&events[i]), 0); err != nil {
			return us, err
		}
		defer func() { _ = g.do("give an event back", g.f.EventDestroy_v2, events[i]) }()
	}
	if err := g.do("record an event", g.f.EventRecord, events[0], stream); err != nil {
		return us, err
	}
	if err := f(); err != nil {
		return us, err
	}
	if err := g.do("record an event", g.f.EventRecord, events[1], stream); err != nil {
		return us, err
	}
	if err := g.do("wait for an event", g.f.EventSynchronize, events[1]); err != nil {
		return us, err
	}
	if err := g.do(
		"tell the time between events",
		g.f.EventElapsedTime,
		ptr(ms),
		events[0],
		events[1],
	); err != nil {
		return us, err
	}
	return float64(*ms) * 1000, nil
}

// Graph is launches that were captured and are replayed as one.
type Graph struct {
	d      *Device
	handle uintptr
	exec   uintptr
}

// Capture records what f puts on the stream, instead of running it. The stream is none of the
// legacy ones.
func (d *Device) Capture(stream uintptr, f func() error) (_ *Graph, err error) {
	g, err := d.real()
	if err != nil {
		return nil, err
	}
	if err := g.do(
		"begin to capture",
		g.f.StreamBeginCapture_v2,
		stream,
		captureRelaxed,
	); err != nil {
		return nil, err
	}
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
