package nvdec

import (
	"fmt"
	"maps"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel/cuda"
)

func (f *fake) host(n int) ([]byte, error) {
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

// far is the address where memory of the fake's device begins: nothing of the process lies there,
// so that a host that touches it fails.
const far = uintptr(1) << 40

// region is a piece of that memory.
type region struct {
	start uintptr
	bytes []byte
}

func (f *fake) alloc(n int) ([]byte, error) {
	if err := f.call("allocate"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &region{far + uintptr(len(f.memory))<<32, make([]byte, n)}
	f.memory, f.live[r.start] = append(f.memory, r), "device memory"
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&r.start)), n), nil
}

func (f *fake) free(m []byte) { f.gone(at(m), "device memory") }

// near is what lies at an address: of memory, or of a frame that is mapped.
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

func (f *fake) copyIn(to, b []byte, _ uintptr) error {
	dst := f.near(at(to))
	f.mu.Lock()
	f.begun = append(f.begun, func() { copy(dst, b) })
	f.mu.Unlock()
	return f.call("copy")
}

// settle does what was begun: something behind it on the stream is done.
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

func (f *fake) record(e, _ uintptr) error {
	f.mu.Lock()
	f.looks[e] = 0
	f.mu.Unlock()
	return f.call("record")
}

// reached is so at the third look.
func (f *fake) reached(e uintptr) (bool, error) {
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
	for i := len(to) - 1; i >= 0; i-- { // in no order
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

func (f *fake) clear(m []byte, _ uintptr) error {
	f.settle()
	clear(f.near(at(m))[:len(m)])
	return f.call("clear")
}

func (f *fake) wait(stream uintptr) error {
	f.settle()
	maps.DeleteFunc(f.reads, func(_, s uintptr) bool { return s == stream })
	return f.call("wait")
}

// reading notes that a stream reads from an address.
func (f *fake) reading(addr, stream uintptr) {
	if addr < far {
		f.reads[addr&^(slot-1)] = stream
	}
}

func (f *fake) frames(form *cuda.FrameForm) (frames, error) {
	return &fakeFrames{f, form}, f.call("load a kernel")
}

// fakeFrames gives of each pixel its luma and chroma, in place of RGB.
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
