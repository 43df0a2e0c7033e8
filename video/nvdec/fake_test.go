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
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

// fake is a driver whose frames are numbers. It reuses surfaces as early as the real driver may.
// The surface of an unreferenced frame is reused for the next frame. With turns set, the least
// recently used surface is reused instead.
type fake struct {
	mu      sync.Mutex
	known   decodeCaps
	format  streamFormat
	status_ int32
	damaged byte // the frame that the engine found an error in; 0: none
	runs    int  // number of status calls that report "in progress"
	failAt  int  // number of the call that fails; 0: none
	calls   int
	next    uintptr
	live    map[uintptr]string // what was created and not freed
	parsers map[uintptr]*fakeParser
	decoded []byte // the decoded frames, in order
	turns   bool
	outputs int              // maximum of mapped surfaces per decoder
	mapped  map[uintptr]int  // mapped surfaces by decoder
	kept    map[uintptr]byte // the frame at each mapped address
	memory  []*region        // allocations of device memory
	copies  int              // launches of copyRows
	// the stream that may still write or read each mapped address
	reads map[uintptr]uintptr
	// copies from the host that have started; they read the source as late as possible
	begun []func()
	looks map[uintptr]int // polls of each event since it was recorded
}

type fakeParser struct {
	d         *decoder
	count     int32
	next      int32
	held      []int32 // surfaces of the last reference frames
	surfaces  map[int32]byte
	sequences int
}

func newFake() *fake {
	return &fake{
		known: decodeCaps{
			supported: 1,
			engines:   7,
			outputs:   maskNV12,
			maxWidth:  4096,
			maxHeight: 4096,
			maxBlocks: 65536,
			minWidth:  48,
			minHeight: 16,
		},
		format: streamFormat{
			codec:       codecH264,
			progressive: 1,
			surfaces:    3,
			width:       64,
			height:      32,
			shown:       rect32{right: 64, bottom: 32},
			chroma:      chroma420,
		},
		live:    map[uintptr]string{},
		parsers: map[uintptr]*fakeParser{},
		mapped:  map[uintptr]int{},
		kept:    map[uintptr]byte{},
		reads:   map[uintptr]uintptr{},
		status_: statusGood,
		looks:   map[uintptr]int{},
	}
}

// call counts a call, and returns an error if it is the one to fail.
func (f *fake) call(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls == f.failAt {
		return &robocache.Error{
			Class: robocache.ErrUnsupported,
			Op:    "CUDA",
			Msg:   "the CUDA driver could not " + what + ": CUDA_ERROR_LAUNCH_FAILED",
		}
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

func (f *fake) withContext(do func()) { do() }

func (f *fake) queryCaps(c *decodeCaps) error {
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

// parsePacket reads the packets that unit and the tests write.
func (f *fake) parsePacket(parser uintptr, p *sourcePacket) error {
	if err := f.call("parse a packet"); err != nil {
		return err
	}
	x := f.parsers[parser]
	if p.flags&endOfStream != 0 {
		for at := range x.surfaces { // like a parser that displays the remaining frames
			x.d.onDisplay(&shownInfo{surface: at, timestamp: p.timestamp})
		}
		x.count, x.held = 0, nil
		return nil
	}
	stopped := &robocache.Error{
		Class: robocache.ErrUnsupported,
		Op:    "CUDA",
		Msg:   "CUDA_ERROR_UNKNOWN",
	}
	b := unsafe.Slice((*byte)(p.data), p.size)
	units := [][]byte{b}
	if f.format.codec != codecVP9 {
		units = bytes.Split(b, []byte{0, 0, 0, 1})[1:]
	}
	for _, u := range units {
		if u[0] == 0x67 || f.format.codec == codecVP9 && x.count == 0 {
			own := f.format
			if x.count = x.d.onSequence(&own); x.count == 0 {
				return stopped
			}
			x.sequences++
		}
		switch u[0] {
		case 0x67:
		case 's': // displays an earlier frame
			for at, id := range x.surfaces {
				if id == u[1] {
					x.d.onDisplay(&shownInfo{surface: at, timestamp: p.timestamp})
				}
			}
		default:
			if x.count == 0 {
				return stopped // no parameter sets were sent
			}
			for i := 1; i+2 < len(u)+1; i += 2 { // pairs of frame number and reference flag
				if !f.one(x, u[i], u[i+1] == 1) {
					return stopped
				}
				// a parser that reorders displays an earlier frame here
				x.d.onDisplay(&shownInfo{surface: 99, timestamp: p.timestamp - 2})
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
	if x.d.onDecode(p) == 0 {
		return false
	}
	if len(f.decoded) > was {
		x.surfaces[at] = id
	}
	return true
}

// the tests mark interlaced frames in this field
func (f *fake) field() int32 { return int32(f.format.more) }

func (f *fake) newDecoder(info *createInfo) (uintptr, error) {
	if info.targetWidth != info.width || info.targetHeight != info.height ||
		info.shown.right != int16(info.width) {
		panic("the engine is told to scale")
	}
	f.outputs = int(info.outputSurfaces)
	return f.made("decoder")
}

func (f *fake) freeDecoder(decoder uintptr) { f.gone(decoder, "decoder") }

func (f *fake) decodePicture(_ uintptr, p *decodeParams) error {
	if err := f.call("decode a frame"); err != nil {
		return err
	}
	f.decoded = append(f.decoded, *(*byte)(p.data))
	return nil
}

func (f *fake) surfaceStatus(_ uintptr, surface int32) int32 {
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

// slot is the distance between the addresses of mapped frames. These addresses are above all
// handles and below the device's memory. Each decoder has its own slots.
const (
	slot  = 1 << 14
	slots = 16
)

func (f *fake) mapFrame(decoder uintptr, surface int32, p *mapParams) (uintptr, int, error) {
	if f.outputs > slots || f.held(decoder, 0) == f.outputs {
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
	at := decoder * slots * slot
	for f.live[at] != "" {
		at += slot
	}
	if s := f.reads[at]; s != 0 && s != p.stream {
		panic("a frame is mapped over one that another stream still reads")
	}
	f.live[at], f.reads[at] = "mapped frame", p.stream
	f.mapped[decoder]++
	for _, x := range f.parsers {
		if x.d.handle == decoder {
			f.kept[at] = x.surfaces[surface]
		}
	}
	return at, int(f.format.width) + 16, nil
}

func (f *fake) unmapFrame(decoder, addr uintptr) error {
	f.held(decoder, -1)
	f.gone(addr, "mapped frame")
	return f.call("take a frame back")
}

// held adds more to the number of mapped surfaces of a decoder and returns it.
func (f *fake) held(decoder uintptr, more int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mapped[decoder] += more
	return f.mapped[decoder]
}

func (f *fake) newStream() (uintptr, error) { return f.made("stream") }
func (f *fake) freeStream(s uintptr)        { f.gone(s, "stream") }

func (f *fake) copyToHost(b []byte, from, stream uintptr) error {
	if err := f.call("copy"); err != nil {
		return err
	}
	maps.DeleteFunc(f.reads, func(_, s uintptr) bool { return s == stream })
	copy(b, f.pixels(from))
	return nil
}

// pixels returns the bytes of a mapped frame in the engine's layout.
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

// sample returns a byte of a frame in the engine's layout: luma rows, then rows of chroma pairs.
func sample(id byte, x, y int) byte { return id*37 ^ byte(x*3) ^ byte(y*5) }

// entry returns a sample entry whose parameter set is one byte.
func entry() *video.SampleEntry {
	return &video.SampleEntry{
		FourCC:    "avc1",
		Codec:     video.H264,
		Width:     64,
		Height:    32,
		Extradata: []byte{1, 100, 0, 10, 0xff, 0xe1, 0, 2, 0x67, 9, 0},
	}
}

// unit returns the packet of a frame, with a length prefix of four bytes.
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

// receive returns a frame without waiting for further packets.
func receive(d *decoder) (video.Frame, int64, bool, error) {
	d.DeliverPending()
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

// forget frees the idle decoders, the staging buffers and the stream.
func (b *Backend) forget() {
	b.mu.Lock()
	idle := b.idleDecoders
	b.idleDecoders = nil
	b.mu.Unlock()
	for _, d := range idle {
		d.releaseAll() // may launch queued operations, which needs b.mu
	}
	b.staging.free()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream != 0 {
		b.driver.freeStream(b.stream)
	}
	b.stream = 0
}

// free waits for the copies and frees all buffers.
func (s *stagingPool) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.idle {
		_ = s.awaitEvent(x.event)
		s.freeBuffer(x)
	}
	s.idle, s.bytes = nil, 0
}
