package cuda

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
)

const (
	captureRelaxed   = 2
	eventWithoutTime = 2 // CU_EVENT_DISABLE_TIMING
	// -100. The driver limits it to its highest priority, which is a few below 0.
	mostUrgent = ^uintptr(0) - 99
)

// NewStream returns a new stream that does not wait for the legacy stream.
func (d *Device) NewStream() (uintptr, error) { return d.launcher.newStream() }

// NewUrgentStream returns a new stream with the highest priority. Its kernels start before waiting
// kernels of other streams. Use it for small work that a network's large kernels would delay at
// each step.
func (d *Device) NewUrgentStream() (uintptr, error) {
	s := new(uintptr)
	err := d.gpu.callDriver(
		"make a stream",
		d.gpu.f.StreamCreateWithPriority,
		ptr(s),
		1,
		mostUrgent,
	)
	return *s, err
}

// FreeStream frees a stream of NewStream or NewUrgentStream. Its work still completes.
func (d *Device) FreeStream(s uintptr) {
	if s != 0 {
		d.launcher.freeStream(s)
	}
}

// newStream implements launcher. Flag 1 is CU_STREAM_NON_BLOCKING: the stream does not wait for the
// legacy stream.
func (g *gpu) newStream() (uintptr, error) {
	s := new(uintptr)
	err := g.callDriver("make a stream", g.f.StreamCreate, ptr(s), 1)
	return *s, err
}

// freeStream implements launcher.
func (g *gpu) freeStream(s uintptr) {
	_ = g.callDriver("give a stream back", g.f.StreamDestroy_v2, s)
}

// NewEvent returns a new event, which marks a point in a stream.
func (d *Device) NewEvent() (uintptr, error) {
	e := new(uintptr)
	err := d.gpu.callDriver("make an event", d.gpu.f.EventCreate, ptr(e), eventWithoutTime)
	return *e, err
}

// FreeEvent frees an event of NewEvent.
func (d *Device) FreeEvent(e uintptr) {
	_ = d.gpu.callDriver("give an event back", d.gpu.f.EventDestroy_v2, e)
}

// Record records an event after the current work of a stream.
func (d *Device) Record(e, stream uintptr) error {
	return d.gpu.callDriver("record an event", d.gpu.f.EventRecord, e, stream)
}

// Reached reports whether all work before an event is done, and returns the error of that work.
func (d *Device) Reached(e uintptr) (bool, error) {
	code := d.gpu.withContext(func() int32 { return cudahost.Call(d.gpu.f.EventQuery, e) })
	if code != 0 && code != notReady {
		return false, d.gpu.driverError("reach an event", code)
	}
	return code == 0, nil
}

// realGPU returns the device of the driver, or an error for the simulator, which has no time and no
// graphs.
func (d *Device) realGPU() (*gpu, error) {
	if d.gpu == nil {
		return nil, robocache.Unsupported("CUDA", nil, "the simulator has no events and no graphs")
	}
	return d.gpu, nil
}

// Elapsed returns how long the work that f adds to a stream takes, by the device's clock, in
// microseconds. It waits for the end of the work.
func (d *Device) Elapsed(stream uintptr, f func() error) (us float64, err error) {
	g, err := d.realGPU()
	if err != nil {
		return us, err
	}
	events := new([2]uintptr) // start, end
	ms := new(float32)
	for i := range events {
		if err := g.callDriver("make an event", g.f.EventCreate, ptr(&events[i]), 0); err != nil {
			return us, err
		}
		defer func() { _ = g.callDriver("give an event back", g.f.EventDestroy_v2, events[i]) }()
	}
	if err := g.callDriver("record an event", g.f.EventRecord, events[0], stream); err != nil {
		return us, err
	}
	if err := f(); err != nil {
		return us, err
	}
	if err := g.callDriver("record an event", g.f.EventRecord, events[1], stream); err != nil {
		return us, err
	}
	if err := g.callDriver("wait for an event", g.f.EventSynchronize, events[1]); err != nil {
		return us, err
	}
	if err := g.callDriver("tell the time between events", g.f.EventElapsedTime, ptr(ms), events[0],
		events[1]); err != nil {
		return us, err
	}
	return float64(*ms) * 1000, nil
}

// Graph is a captured sequence of launches that is replayed as one.
type Graph struct {
	d      *Device
	handle uintptr
	exec   uintptr
}

// Capture records the work that f adds to the stream, instead of running it. The stream must not be
// a legacy stream.
func (d *Device) Capture(stream uintptr, f func() error) (_ *Graph, err error) {
	g, err := d.realGPU()
	if err != nil {
		return nil, err
	}
	if err := g.callDriver("begin to capture", g.f.StreamBeginCapture_v2, stream,
		captureRelaxed); err != nil {
		return nil, err
	}
	failed := f()
	words := new([2]uintptr)
	err = g.callDriver("make a graph", g.f.StreamEndCapture, stream, ptr(&words[0]))
	if failed != nil {
		err = failed
	}
	if err == nil {
		err = g.callDriver(
			"make a graph",
			g.f.GraphInstantiateWithFlags,
			ptr(&words[1]),
			words[0],
			0,
		)
	}
	graph := &Graph{d: d, handle: words[0], exec: words[1]}
	if err != nil {
		graph.Free()
		return nil, err
	}
	return graph, nil
}

// Launch replays the graph on a stream. The addresses are the same; their contents may have
// changed.
func (gr *Graph) Launch(stream uintptr) error {
	return gr.d.gpu.callDriver("launch a graph", gr.d.gpu.f.GraphLaunch, gr.exec, stream)
}

// Free frees the graph.
func (gr *Graph) Free() {
	g := gr.d.gpu
	_ = g.withContext(func() int32 {
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
