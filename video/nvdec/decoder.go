package nvdec

import (
	"slices"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// none is no surface.
const none = -1

const (
	// spare is how many surfaces a decoder has, at least, beyond those that its references need, so
	// that the engine is not waited for between frames.
	spare = 4
	// maxTogether is how many frames are waited for together: with more the driver waits in the
	// middle of a call, and keeps a core busy. togetherBytes is what these may hold: of large ones
	// each is waited for alone.
	maxTogether, togetherBytes = 4, 4 << 20
)

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
	most   int    // frames that are waited for together

	// of the packet in hand
	packet   packet
	bytes    []byte
	unwanted bool
	surface  int32
	err      error // of a callback

	newest int32 // the surface that was decoded last

	closed bool
	broken bool // a call of the driver failed: it is not kept

	fresh  bool          // the next packet needs its parameter sets
	inside []inside      // frames that were sent and not given yet
	giving bool          // they come out, one after the other
	done   bool          // the engine is done with all of them
	frame  frame         // that was given last
	mapped []held        // places that are to be given back
	reads  bool          // the backend's stream may still write or read what was mapped
	usual  time.Duration // that a frame is waited for
	// surfaces of frames that others may refer to, decoded since the last frame that was given;
	// none: it was asked for
	since []int32
}

// inside is a frame of a decoder.
type inside struct {
	surface int32
	number  int64
	since   int // so many of decoder.since were decoded before it, or with it
	place   place
	bad     error // how its surface was decoded, where that was asked for before it was given
}

// place is where a frame is mapped.
type place struct {
	addr   uintptr // 0: it is not
	pitch  int     // bytes of a row
	stream uintptr // it is there for
}

// held is a mapped surface. It may be unmapped after the fence of its last queued reader has
// passed.
type held struct {
	addr    uintptr
	readers fence
}

var (
	_ video.Skipper = (*decoder)(nil)
	_ video.Within  = (*decoder)(nil)
	_ video.Holder  = (*decoder)(nil)
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

// SendUnwanted sends a packet whose frame is not wanted: where nothing refers to it, the engine is
// spared.
func (d *decoder) SendUnwanted(sample []byte, number int64) (err error) {
	d.b.d.within(func() { err = d.send(sample, number, true) })
	return err
}

func (d *decoder) send(sample []byte, number int64, unwanted bool) (err error) {
	if d.closed {
		return closed()
	}
	if d.bytes, err = d.form.Packet(d.bytes[:0], sample, d.fresh); err != nil {
		return err
	}
	if len(d.bytes) == 0 {
		return robocache.Malformed(opDecode, nil, "an empty packet")
	}
	d.fresh, d.unwanted, d.surface, d.done = false, unwanted, none, false
	d.packet = packet{
		flags:     timestamped | wholeFrame,
		size:      uint64(len(d.bytes)),
		data:      unsafe.Pointer(unsafe.SliceData(d.bytes)),
		timestamp: number,
	}
	return d.parse()
}

func (d *decoder) parse() error {
	err := d.b.d.parse(d.parser, &d.packet)
	d.packet.data = nil
	if d.err != nil { // the cause: the parser only says that it was stopped
		err, d.err = d.err, nil
	}
	if d.broken = d.broken ||
		err != nil; err == nil && d.surface != none && !d.unwanted &&
		d.packet.flags&endOfStream == 0 {
		d.inside = append(
			d.inside,
			inside{surface: d.surface, number: d.packet.timestamp, since: len(d.since)},
		)
	}
	return err
}

// failed keeps the error of a callback for the call that the callback came from; it gives what
// stops the parser.
func (d *decoder) failed(err error) int32 {
	if d.err == nil {
		d.err = err
	}
	return 0
}

// sequence is called by the parser where a stream begins or changes its form. It gives how many
// surfaces there are.
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
	d.most = min(max(togetherBytes/int(f.width*f.height*3/2), 1), maxTogether)
	d.format, d.count = *f, int32(f.surfaces)+int32(max(spare, d.most))
	handle, err := d.b.d.newDecoder(&createInfo{
		width: uint64(
			f.width,
		),
		height:   uint64(f.height),
		surfaces: uint64(d.count),
		codec:    f.codec,
		chroma:   f.chroma,
		flags:    preferEngines,
		maxWidth: uint64(
			f.width,
		),
		maxHeight: uint64(f.height),
		shown:     rect16{right: int16(f.width), bottom: int16(f.height)},
		targetWidth: uint64(
			f.width,
		),
		targetHeight:   uint64(f.height),
		outputSurfaces: uint64(d.places()),
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
	if err := d.vacate(p.surface); err != nil {
		return d.failed(err)
	}
	if err := d.b.d.decode(d.handle, p); err != nil {
		return d.failed(err)
	}
	d.surface, d.newest = p.surface, p.surface
	if !alone {
		d.since = append(d.since, p.surface)
	}
	return 1
}

// show is called by the parser where a frame is to be shown. Of interest is one that a packet shows
// without decoding any.
func (d *decoder) show(s *shownInfo) int32 {
	if s != nil && d.entry.Codec == video.VP9 && d.surface == none &&
		s.timestamp == d.packet.timestamp {
		d.surface = s.surface
	}
	return 1
}

// vacate makes a surface ready for another frame: one that is inside is mapped, and of one that
// others may refer to the engine is asked how it was decoded, for it tells of a surface's last
// frame alone.
func (d *decoder) vacate(surface int32) error {
	own := slices.IndexFunc(d.inside, func(x inside) bool { return x.surface == surface })
	i := slices.Index(d.since, surface)
	if own < 0 && i < 0 {
		return nil
	}
	status := d.await(surface, 1)
	if i >= 0 {
		d.since[i] = none
	}
	if own < 0 {
		if status == statusRuns { // nobody could ask later
			return d.fault(status)
		}
		return d.met(status)
	}
	stream, err := d.b.order()
	for ; own < len(d.inside) && err == nil; own++ { // VP9 may show one twice
		if x := &d.inside[own]; x.surface == surface {
			x.surface = none
			if x.place, err = d.mapSurface(surface, stream); err == nil {
				if status == statusRuns { // the mapping waited to its end
					status = d.b.d.status(d.handle, surface)
				}
				x.bad = d.met(status) // what refers to it comes behind it
			}
		}
	}
	return err
}

// places is how many frames may be mapped: twice as many as are waited for together, so that
// operations that read them may be queued.
func (d *decoder) places() int { return 2 * d.most }

// mapSurface maps a decoded surface: the engine's is copied on the stream. Frames that were given
// before make room.
func (d *decoder) mapSurface(surface int32, stream uintptr) (p place, err error) {
	taken := len(d.mapped)
	for i := range d.inside {
		if d.inside[i].place.addr != 0 {
			taken++
		}
	}
	if taken >= d.places() {
		if err := d.makeRoom(); err != nil {
			return p, err
		}
	}
	if d.reads && stream == d.stream { // what is overwritten may be read on the other
		if err := d.b.ordered(d.b.d.wait); err != nil {
			return p, err
		}
		d.reads = false
	}
	p.addr, p.pitch, err = d.b.d.mapFrame(
		d.handle,
		surface,
		&mapParams{progressive: 1, stream: stream},
	)
	p.stream = stream
	d.reads = d.reads || stream != d.stream
	return p, err
}

// makeRoom unmaps surfaces. If all of them are read by queued operations, these are launched first.
func (d *decoder) makeRoom() error {
	n := len(d.mapped)
	err := d.unmap()
	if err == nil && len(d.mapped) == n {
		if err = d.b.queue.Flush(); err == nil {
			err = d.unmap()
		}
	}
	return err
}

// unmap unmaps the surfaces whose readers have been launched: on the backend's stream they come
// before what overwrites the surface.
func (d *decoder) unmap() (err error) {
	d.mapped = slices.DeleteFunc(d.mapped, func(x held) bool {
		if !d.b.queue.Passed(x.readers) {
			return false
		}
		if failed := d.b.d.unmap(d.handle, x.addr); err == nil {
			err = failed
		}
		return true
	})
	d.broken = d.broken || err != nil
	return err
}

// Receive gives the frames that are inside, once there are enough of them, or Give was called;
// their pixels are fetched when they are asked for.
func (d *decoder) Receive() (video.Frame, int64, bool, error) {
	if d.closed {
		return nil, 0, false, closed()
	}
	if d.giving = len(d.inside) > 0 && (d.giving || len(d.inside) >= d.most); !d.giving {
		return nil, 0, false, nil
	}
	d.frame.inside, d.frame.here, d.frame.met = d.inside[0], false, false
	d.inside = slices.Delete(d.inside, 0, 1)
	d.giving = len(d.inside) > 0
	if addr := d.frame.place.addr; addr != 0 {
		d.mapped = append(d.mapped, held{addr: addr})
	}
	return &d.frame, d.frame.number, true, nil
}

// Give lets Receive give what is inside.
func (d *decoder) Give() { d.giving = true }

// Drain is Give: each frame comes of its own packet alone.
func (d *decoder) Drain() error {
	if d.closed {
		return closed()
	}
	d.Give()
	return nil
}

// Flush tells the parser that the stream ends here; the next packet brings its parameter sets.
func (d *decoder) Flush() {
	d.forget()
	d.surface, d.fresh, d.since, d.giving, d.frame.since = none, true, d.since[:0], false, 0
	if d.parser != 0 {
		d.packet = packet{flags: endOfStream}
		_ = d.parse() // what the next packet needs it says itself
	}
}

// forget drops what is inside. Queued operations still read the surfaces of frames that were
// delivered: they stay mapped, and nothing is launched for them.
func (d *decoder) forget() {
	for _, x := range d.inside {
		if x.place.addr != 0 {
			d.mapped = append(d.mapped, held{addr: x.place.addr})
		}
	}
	d.inside = d.inside[:0]
	_ = d.unmap() // the decoder is broken then
}

// MemoryBytes is what the decoder holds, on the device for the most part.
func (d *decoder) MemoryBytes() int64 {
	one := int64(d.format.width) * int64(d.format.height) * 3 / 2
	return one*int64(int(d.count)+d.places()) + int64(len(d.frame.host)+cap(d.bytes)) + 1<<20
}

// Close keeps a sound decoder for the next stream of its kind: making one takes 35 ms, one at a
// time.
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
	d.forget()
	_ = d.b.queue.Flush() // queued operations may read its surfaces
	_ = d.unmap()
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

func closed() error {
	return robocache.Misuse(opDecode, nil, "the decoder is closed")
}
