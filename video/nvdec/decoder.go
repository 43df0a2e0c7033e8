package nvdec

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cudahost"
	"github.com/goatnote-inc/robocache/video"
)

// none is no surface.
const none = -1

// spare is how many surfaces a decoder has beyond those that its references need, so that the engine is not waited for between frames.
const spare = 4

// decoder is a parser and a decoder of libnvcuvid, with a stream of the device.
type decoder struct {
	b      *Backend
	caps   caps
	entry  video.SampleEntry
	form   *video.Elementary
	parser uintptr
	user   uintptr // the number that its callbacks carry
	handle uintptr // the decoder; 0 before the first packet
	stream uintptr
	format format // that handle is for
	count  int32  // surfaces of it

	// of the packet in hand
	packet   packet
	bytes    []byte
	unwanted bool
	surface  int32
	err      error // of a callback

	closed bool
	broken bool // a call of the driver failed: it is not kept

	fresh bool // the next packet needs its parameter sets
	frame frame
	usual time.Duration // that a frame is waited for
	since []int32       // surfaces of frames that others may refer to, decoded since the last frame that was taken
}

var (
	_ video.Skipper = (*decoder)(nil)
	_ video.Within  = (*decoder)(nil)
)

// Within is for several calls in a row.
func (d *decoder) Within(f func()) { d.b.d.within(f) }

// open makes what a decoder has before its first packet.
func (d *decoder) open() (err error) {
	if d.stream, err = d.b.d.newStream(); err != nil {
		return err
	}
	p := &parserParams{codec: d.caps.codec, surfaces: 1}
	d.parser, err = d.b.d.newParser(p, d)
	d.user = p.user
	return err
}

func (d *decoder) Send(sample []byte, number int64) (err error) {
	d.b.d.within(func() { err = d.send(sample, number, false) })
	return err
}

// SendUnwanted sends a packet whose frame is not wanted: where nothing refers to it, the engine is spared.
func (d *decoder) SendUnwanted(sample []byte, number int64) (err error) {
	d.b.d.within(func() { err = d.send(sample, number, true) })
	return err
}

func (d *decoder) send(sample []byte, number int64, unwanted bool) (err error) {
	if d.closed {
		return closed()
	}
	if err := d.frame.unmap(); err != nil {
		return err
	}
	if d.bytes, err = d.form.Packet(d.bytes[:0], sample, d.fresh); err != nil {
		return err
	}
	if len(d.bytes) == 0 {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: opDecode, Msg: "an empty packet"}
	}
	d.fresh, d.unwanted, d.surface = false, unwanted, none
	d.packet = packet{flags: timestamped | wholeFrame, size: uint64(len(d.bytes)), data: unsafe.Pointer(unsafe.SliceData(d.bytes)), timestamp: number}
	return d.parse()
}

func (d *decoder) parse() error {
	err := d.b.d.parse(d.parser, &d.packet)
	d.packet.data = nil
	if d.err != nil { // the cause: the parser only says that it was stopped
		err, d.err = d.err, nil
	}
	d.broken = d.broken || err != nil
	return err
}

// failed keeps the error of a callback for the call that the callback came from; it gives what stops the parser.
func (d *decoder) failed(err error) int32 {
	if d.err == nil {
		d.err = err
	}
	return 0
}

// sequence is called by the parser where a stream begins or changes its form. It gives how many surfaces there are.
func (d *decoder) sequence(f *format) int32 {
	if d.handle != 0 {
		if *f != d.format {
			return d.failed(d.b.refuse("a stream that changes its format", "", ""))
		}
		return d.count
	}
	if err := d.b.fits(&d.caps, f); err != nil {
		return d.failed(err)
	}
	d.format, d.count = *f, int32(f.surfaces)+spare
	handle, err := d.b.d.newDecoder(&createInfo{
		width: uint64(f.width), height: uint64(f.height), surfaces: uint64(d.count), codec: f.codec, chroma: f.chroma, flags: preferEngines,
		maxWidth: uint64(f.width), maxHeight: uint64(f.height), shown: rect16{right: int16(f.width), bottom: int16(f.height)},
		targetWidth: uint64(f.width), targetHeight: uint64(f.height), outputSurfaces: 1,
	})
	if err != nil {
		return d.failed(err)
	}
	d.handle = handle
	return d.count
}

// decode is called by the parser for each frame that is to be decoded.
func (d *decoder) decode(p *decodeParams) int32 {
	if p.field != 0 {
		return d.failed(d.b.refuse("interlaced frames", "", ""))
	}
	alone := p.reference == 0 && d.entry.Codec == video.H264 // nothing refers to the frame
	if d.unwanted && alone {
		return 1
	}
	if slices.Contains(d.since, p.surface) { // the engine tells of a surface's last frame alone: of the one before it, which others may refer to, it is asked while it can tell
		if err := d.met(d.await(p.surface)); err != nil {
			return d.failed(err)
		}
	}
	if err := d.b.d.decode(d.handle, p); err != nil {
		return d.failed(err)
	}
	d.surface = p.surface
	if !alone && !slices.Contains(d.since, p.surface) {
		d.since = append(d.since, p.surface)
	}
	return 1
}

// show is called by the parser where a frame is to be shown. Of interest is one that a packet shows without decoding any.
func (d *decoder) show(s *shownInfo) int32 {
	if s != nil && d.entry.Codec == video.VP9 && d.surface == none && s.timestamp == d.packet.timestamp {
		d.surface = s.surface
	}
	return 1
}

// Receive gives the frame of the packet that was sent last; its pixels are fetched when they are asked for.
func (d *decoder) Receive() (video.Frame, int64, bool, error) {
	if d.closed {
		return nil, 0, false, closed()
	}
	if d.surface == none || d.unwanted {
		return nil, 0, false, nil
	}
	d.frame.surface, d.frame.here = d.surface, false
	d.surface = none
	return &d.frame, d.packet.timestamp, true, nil
}

// Drain has nothing to do: each frame was given with its packet.
func (d *decoder) Drain() error {
	if d.closed {
		return closed()
	}
	return nil
}

// Flush tells the parser that the stream ends here; the next packet brings its parameter sets.
func (d *decoder) Flush() {
	_ = d.frame.unmap() // the decoder is broken then
	d.surface, d.fresh, d.since = none, true, d.since[:0]
	if d.parser != 0 {
		d.packet = packet{flags: endOfStream}
		_ = d.parse() // what the next packet needs it says itself
	}
}

// MemoryBytes is what the decoder holds, on the device for the most part.
func (d *decoder) MemoryBytes() int64 {
	one := int64(d.format.width) * int64(d.format.height) * 3 / 2
	return one*int64(d.count+1) + int64(len(d.frame.host)+cap(d.bytes)) + 1<<20
}

// Close keeps a sound decoder for the next stream of its kind: making one takes 35 ms, one at a time.
func (d *decoder) Close() {
	if d.closed {
		return
	}
	d.closed = true
	if d.handle != 0 && !d.broken {
		if d.Flush(); !d.broken && d.b.keep(d) {
			return
		}
	}
	d.free()
}

// free gives back what the decoder has.
func (d *decoder) free() {
	_ = d.frame.unmap()
	if d.handle != 0 {
		d.b.d.freeDecoder(d.handle)
	}
	if d.parser != 0 {
		d.b.d.freeParser(d.parser, d.user)
	}
	if d.frame.host != nil {
		d.b.d.freeHost(d.frame.host)
	}
	if d.stream != 0 {
		d.b.d.freeStream(d.stream)
	}
	d.handle, d.parser, d.stream, d.frame.host = 0, 0, 0, nil
}

// The engine is asked at most so often whether it is done, and so many times.
const (
	glance  = 50 * time.Microsecond
	glances = 50_000
)

// await waits until a surface is decoded: most of the usual time in one nap, then an eighth of it at a time, for looking costs the host more than a frame that is
// taken late costs the engine, which has others. Mapping the surface would wait too, but keep a core busy meanwhile. What takes too long is left to the
// mapping, which has the error. It gives what the engine said last.
func (d *decoder) await(surface int32) (status int32) {
	begin, nap := time.Now(), d.usual*5/8
	for range glances {
		if status = d.b.d.status(d.handle, surface); status != statusRuns {
			break
		}
		cudahost.Nap(max(nap, glance))
		nap = d.usual / 8
	}
	d.usual = (3*d.usual + min(time.Since(begin), time.Millisecond)) / 4
	return status
}

// sound says how the frame in hand was decoded, and asks of those that it may refer to since the last one that was taken (N5). The engine takes them in
// order, so that all are done.
func (d *decoder) sound(status int32) error {
	defer func() { d.since = d.since[:0] }()
	if status == statusRuns { // it was not waited for to its end
		status = d.b.d.status(d.handle, d.frame.surface)
	}
	for _, s := range d.since {
		if s == d.frame.surface {
			continue
		}
		if err := d.good(s); err != nil {
			return err
		}
	}
	return d.met(status)
}

// good asks how the last frame of a surface was decoded.
func (d *decoder) good(surface int32) error { return d.met(d.b.d.status(d.handle, surface)) }

// met is the error of what the engine says of a frame.
func (d *decoder) met(status int32) error {
	switch status {
	case 0, statusRuns, statusGood: // 0: the driver does not say
		return nil
	}
	return &robocache.Error{Class: robocache.ErrMalformed, Op: opDecode, Where: robocache.Where{"codec": string(d.entry.Codec)}, Msg: fmt.Sprintf("the engine met an error in the packets (status %d)", status)}
}

func closed() error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: opDecode, Msg: "the decoder is closed"}
}
