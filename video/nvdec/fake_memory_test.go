package nvdec

import (
	"fmt"
	"maps"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel/cuda"
)

func (f *fake) allocHost(n int) ([]byte, error) {
	if err := f.call("allocate"); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[uintptr(unsafe.Pointer(unsafe.SliceData(b)))] = "memory"
	return b, nil
}

func (f *fake) freeHost(b []byte) { f.gone(uintptr(unsafe.Pointer(unsafe.SliceData(b))), "memory") }

// far is the address at which the fake's device memory begins. The process maps nothing there, so
// host code that touches it crashes.
const far = uintptr(1) << 40

// region is one allocation of device memory.
type region struct {
	start uintptr
	bytes []byte
}

func (f *fake) allocDevice(n int) ([]byte, error) {
	if err := f.call("allocate"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &region{far + uintptr(len(f.memory))<<32, make([]byte, n)}
	f.memory, f.live[r.start] = append(f.memory, r), "device memory"
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&r.start)), n), nil
}

func (f *fake) freeDevice(m []byte) { f.gone(deviceAddress(m), "device memory") }

// near returns the bytes at a device address, of an allocation or of a mapped frame.
func (f *fake) near(addr uintptr) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.memory {
		if addr >= r.start && addr < r.start+uintptr(len(r.bytes)) {
			return r.bytes[addr-r.start:]
		}
	}
	place := addr &^ (slot - 1)
	if f.live[place] != "mapped frame" {
		panic(fmt.Sprintf("nothing of the device lies at %#x", addr))
	}
	return f.pixels(place)[addr-place:]
}

func (f *fake) copyFromHost(to, b []byte, _ uintptr) error {
	dst := f.near(deviceAddress(to))
	f.mu.Lock()
	f.begun = append(f.begun, func() { copy(dst, b) })
	f.mu.Unlock()
	return f.call("copy")
}

// settle runs the copies that have started, because later work on the stream is complete.
func (f *fake) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.begun {
		c()
	}
	f.begun = nil
}

func (f *fake) newEvent() (uintptr, error) { return f.made("event") }
func (f *fake) freeEvent(e uintptr)        { f.gone(e, "event") }

func (f *fake) recordEvent(e, _ uintptr) error {
	f.mu.Lock()
	f.looks[e] = 0
	f.mu.Unlock()
	return f.call("record")
}

// eventReached returns true at the third poll.
func (f *fake) eventReached(e uintptr) (bool, error) {
	if err := f.call("look at an event"); err != nil {
		return false, err
	}
	f.mu.Lock()
	f.looks[e]++
	done := f.looks[e] > 2
	f.mu.Unlock()
	if done {
		f.settle()
	}
	return done, nil
}

func (f *fake) copyRows(to, from []uintptr, rows *cuda.Rows, stream uintptr) error {
	f.settle()
	f.copies++
	for i := len(to) - 1; i >= 0; i-- { // in reverse, because the order is not defined
		f.reading(from[i], stream)
		for _, a := range rows {
			for y := range a.Rows {
				copy(
					f.near(to[i] + uintptr(a.ToAt+y*a.To))[:a.Bytes],
					f.near(from[i]+uintptr(a.FromAt+y*a.From)),
				)
			}
		}
	}
	return f.call("copy")
}

func (f *fake) clearDevice(m []byte, _ uintptr) error {
	f.settle()
	clear(f.near(deviceAddress(m))[:len(m)])
	return f.call("clear")
}

func (f *fake) waitStream(stream uintptr) error {
	f.settle()
	maps.DeleteFunc(f.reads, func(_, s uintptr) bool { return s == stream })
	return f.call("wait")
}

// reading records that a stream reads from an address.
func (f *fake) reading(addr, stream uintptr) {
	if addr < far {
		f.reads[addr&^(slot-1)] = stream
	}
}

func (f *fake) prepareKernel(form *cuda.FrameForm) (frameKernel, error) {
	return &fakeFrames{f, form}, f.call("load a kernel")
}

// fakeFrames writes the luma and chroma of each pixel instead of RGB.
type fakeFrames struct {
	f    *fake
	form *cuda.FrameForm
}

func (x *fakeFrames) Run(
	froms []cuda.FramePlanes,
	outs []uintptr,
	planes bool,
	stream uintptr,
) error {
	for i := range froms {
		x.run(&froms[i], outs[i], planes, stream)
	}
	return x.f.call("launch")
}

func (x *fakeFrames) run(from *cuda.FramePlanes, out uintptr, planes bool, stream uintptr) {
	x.f.settle()
	x.f.reading(from.Luma, stream)
	to, luma, chroma := x.f.near(out), x.f.near(from.Luma), x.f.near(from.Chroma)
	n := x.form.Width * x.form.Height
	for i := range n {
		row, column := i/x.form.Width, i%x.form.Width
		at, step := 3*i, 1
		if planes {
			at, step = i, n
		}
		c := row/2*from.ChromaRow + column/2*2
		to[at], to[at+step], to[at+2*step] = luma[row*from.LumaRow+column], chroma[c], chroma[c+1]
	}
}
