package nvdec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// fake is a driver whose frames are numbers. It hands surfaces out as meanly as the real one may: that of a frame that nothing refers to is the next one's, or, with
// turns, as that one does: the one that was not used for longest.
type fake struct {
	mu      sync.Mutex
	known   caps
	format  format
	status_ int32
	damaged byte // the frame that the engine met an error in; 0 none
	runs    int  // how often the engine is not done yet
	failAt  int  // the call that fails; 0 none
	calls   int
	next    uintptr
	live    map[uintptr]string // what was made and not given back
	parsers map[uintptr]*fakeParser
	decoded []byte // the frames that were decoded, in order
	turns   bool
	outputs int                 // that may be mapped at once
	mapped  int                 // that are
	kept    map[uintptr]byte    // the frame of each place that was mapped
	memory  []*region           // of the device
	copies  int                 // launches of copyRows
	reads   map[uintptr]uintptr // the stream on which what was mapped at a place may still be written or read
	begun   []func()            // copies from the host, which read its memory as late as they may
	looks   map[uintptr]int     // how often an event was asked for since it was recorded
}

type fakeParser struct {
	d         *decoder
	count     int32
	next      int32
	held      []int32 // surfaces of the last references
	surfaces  map[int32]byte
	sequences int
}

func newFake() *fake {
	return &fake{
		known:  caps{supported: 1, engines: 7, outputs: maskNV12, maxWidth: 4096, maxHeight: 4096, maxBlocks: 65536, minWidth: 48, minHeight: 16},
		format: format{codec: codecH264, progressive: 1, surfaces: 3, width: 64, height: 32, shown: rect32{right: 64, bottom: 32}, chroma: chroma420},
		live:   map[uintptr]string{}, parsers: map[uintptr]*fakeParser{}, kept: map[uintptr]byte{}, reads: map[uintptr]uintptr{}, status_: statusGood, looks: map[uintptr]int{},
	}
}

// call counts a call, and fails the one that is to fail.
func (f *fake) call(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls == f.failAt {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "CUDA", Msg: "the CUDA driver could not " + what + ": CUDA_ERROR_LAUNCH_FAILED"}
	}
	return nil
}

func (f *fake) made(what string) (uintptr, error) {
	if err := f.call("make a " + what); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	f.live[f.next] = what
	return f.next, nil
}

func (f *fake) gone(handle uintptr, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live[handle] != what {
		panic(fmt.Sprintf("%s %d given back, which is %q", what, handle, f.live[handle]))
	}
	delete(f.live, handle)
}

func (f *fake) within(do func()) { do() }

func (f *fake) caps(c *caps) error {
	if err := f.call("tell"); err != nil {
		return err
	}
	asked := *c
	*c = f.known
	c.codec, c.chroma, c.depth = asked.codec, asked.chroma, asked.depth
	return nil
}

func (f *fake) newParser(p *parserParams, d *decoder) (uintptr, error) {
	h, err := f.made("parser")
	if err == nil {
		f.parsers[h] = &fakeParser{d: d, surfaces: map[int32]byte{}}
	}
	return h, err
}

func (f *fake) freeParser(parser, _ uintptr) {
	f.gone(parser, "parser")
	delete(f.parsers, parser)
}

// parse reads what unit and shows write.
func (f *fake) parse(parser uintptr, p *packet) error {
	if err := f.call("parse a packet"); err != nil {
		return err
	}
	x := f.parsers[parser]
	if p.flags&endOfStream != 0 {
		x.count, x.held = 0, nil
		return nil
	}
	stopped := &robocache.Error{Class: robocache.ErrUnsupported, Op: "CUDA", Msg: "CUDA_ERROR_UNKNOWN"}
	b := unsafe.Slice((*byte)(p.data), p.size)
	units := [][]byte{b}
	if f.format.codec != codecVP9 {
		units = bytes.Split(b, []byte{0, 0, 0, 1})[1:]
	}
	for _, u := range units {
		if u[0] == 0x67 || f.format.codec == codecVP9 && x.count == 0 {
			own := f.format
			if x.count = x.d.sequence(&own); x.count == 0 {
				return stopped
			}
			x.sequences++
		}
		switch u[0] {
		case 0x67:
		case 's': // shows a frame that is there
			for at, id := range x.surfaces {
				if id == u[1] {
					x.d.show(&shownInfo{surface: at, timestamp: p.timestamp})
				}
			}
		default:
			if x.count == 0 {
				return stopped // no parameter sets
			}
			for i := 1; i+2 < len(u)+1; i += 2 { // frames of one packet: number, is a reference
				if !f.one(x, u[i], u[i+1] == 1) {
					return stopped
				}
				x.d.show(&shownInfo{surface: 99, timestamp: p.timestamp - 2}) // an earlier one, as a parser that reorders says it
			}
		}
	}
	return nil
}

func (f *fake) one(x *fakeParser, id byte, reference bool) bool {
	at := int32(0)
	if f.turns {
		at = x.next
	}
	for slices.Contains(x.held, at) {
		if at++; at == x.count && f.turns {
			at = 0
		}
	}
	if at >= x.count {
		panic("more surfaces than the decoder has")
	}
	x.next = (at + 1) % x.count
	was := len(f.decoded)
	p := &decodeParams{surface: at, data: unsafe.Pointer(&id), bytes: 1, field: f.field()}
	if reference {
		p.reference = 1
		if x.held = append(x.held, at); len(x.held) > 2 {
			x.held = x.held[1:]
		}
	}
	if x.d.decode(p) == 0 {
		return false
	}
	if len(f.decoded) > was {
		x.surfaces[at] = id
	}
	return true
}

func (f *fake) field() int32 { return int32(f.format.more) } // a mark of the tests

func (f *fake) newDecoder(info *createInfo) (uintptr, error) {
	if info.targetWidth != info.width || info.targetHeight != info.height || info.shown.right != int16(info.width) {
		panic("the engine is told to scale")
	}
	f.outputs = int(info.outputSurfaces)
	return f.made("decoder")
}

func (f *fake) freeDecoder(decoder uintptr) { f.gone(decoder, "decoder") }

func (f *fake) decode(_ uintptr, p *decodeParams) error {
	if err := f.call("decode a frame"); err != nil {
		return err
	}
	f.decoded = append(f.decoded, *(*byte)(p.data))
	return nil
}

func (f *fake) status(_ uintptr, surface int32) int32 {
	if f.runs--; f.runs >= 0 {
		return statusRuns
	}
	for _, x := range f.parsers {
		if f.damaged != 0 && x.surfaces[surface] == f.damaged {
			return 8
		}
	}
	return f.status_
}

// slot is how far places of mapped frames lie apart: they lie below the device's memory, and above all handles.
const slot = 1 << 14

func (f *fake) mapFrame(_ uintptr, surface int32, p *mapParams) (uintptr, int, error) {
	if f.mapped == f.outputs {
		panic("more frames are mapped than the decoder has places for")
	}
	if f.runs > 0 {
		panic("a frame is mapped that is being decoded")
	}
	if err := f.call("map a frame"); err != nil {
		return 0, 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := uintptr(slot)
	for f.live[at] != "" {
		at += slot
	}
	if s := f.reads[at]; s != 0 && s != p.stream {
		panic("a frame is mapped over one that another stream still reads")
	}
	f.live[at], f.reads[at] = "mapped frame", p.stream
	f.mapped++
	for _, x := range f.parsers {
		f.kept[at] = x.surfaces[surface]
	}
	return at, int(f.format.width) + 16, nil
}

func (f *fake) unmap(_, addr uintptr) error {
	f.mapped--
	f.gone(addr, "mapped frame")
	return f.call("take a frame back")
}

func (f *fake) newStream() (uintptr, error) { return f.made("stream") }
func (f *fake) freeStream(s uintptr)        { f.gone(s, "stream") }

func (f *fake) copyOut(b []byte, from, stream uintptr) error {
	if err := f.call("copy"); err != nil {
		return err
	}
	maps.DeleteFunc(f.reads, func(_, s uintptr) bool { return s == stream })
	copy(b, f.pixels(from))
	return nil
}

// pixels are a mapped frame's, as the engine gives them.
func (f *fake) pixels(mapped uintptr) []byte {
	pitch, h := int(f.format.width)+16, int(f.format.height)
	b := make([]byte, pitch*h*3/2)
	for y := range h * 3 / 2 {
		for x := range int(f.format.width) {
			b[y*pitch+x] = sample(f.kept[mapped], x, y)
		}
	}
	return b
}

// sample is a byte of a frame as the engine gives it: rows of luma, then rows of pairs.
func sample(id byte, x, y int) byte { return id*37 ^ byte(x*3) ^ byte(y*5) }

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

// far is the address where memory of the fake's device begins: nothing of the process lies there, so that a host that touches it fails.
const far = uintptr(1) << 20

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
				copy(f.near(to[i] + uintptr(a.ToAt+y*a.To))[:a.Bytes], f.near(from[i]+uintptr(a.FromAt+y*a.From)))
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

func (x *fakeFrames) Run(froms []cuda.FramePlanes, outs []uintptr, planes bool, stream uintptr) error {
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

// entry is a sample entry whose parameter set is one byte.
func entry() *video.SampleEntry {
	return &video.SampleEntry{FourCC: "avc1", Codec: video.H264, Width: 64, Height: 32, Extradata: []byte{1, 100, 0, 10, 0xff, 0xe1, 0, 2, 0x67, 9, 0}}
}

// unit is a packet of a frame, with a length of four bytes before it.
func unit(id byte, reference bool) []byte {
	r := byte(2)
	if reference {
		r = 1
	}
	return []byte{0, 0, 0, 3, 0x41, id, r}
}

func open(t testing.TB, f *fake, e *video.SampleEntry) *decoder {
	t.Helper()
	d, err := newBackend(f, 0, "fake").NewDecoder(e)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*decoder)
}

// receive gives a frame without waiting for others.
func receive(d *decoder) (video.Frame, int64, bool, error) {
	d.Give()
	return d.Receive()
}

// expect compares the planes of a frame.
func expect(t testing.TB, pic video.Frame, f *fake, id byte) {
	t.Helper()
	x := pic.(video.PlanarFrame)
	info, _ := x.PlaneInfo()
	got := make([]byte, info.Bytes())
	for i := range got {
		got[i] = 0xee
	}
	if err := x.CopyPlanes(got); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, info.Bytes())
	planes, _ := info.Planes()
	left, top, h := int(f.format.shown.left), int(f.format.shown.top), int(f.format.height)
	for k, p := range planes {
		for y := range p.Rows {
			for x := range p.RowBytes {
				v := sample(id, left+x, top+y)
				if k > 0 {
					v = sample(id, left+2*x+k-1, h+top/2+y)
				}
				want[p.Offset+y*p.Stride+x] = v
			}
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("frame %d has other planes", id)
	}
}
