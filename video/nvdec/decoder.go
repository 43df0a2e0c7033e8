package nvdec

import (
	"slices"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// none is the surface number that means "no surface".
const none = -1

const (
	// spareSurfaces is the minimum number of surfaces beyond those that the references need. With
	// them the engine continues while decoded frames are read.
	spareSurfaces = 4
	// maxTogether is the maximum number of frames that one wait covers. With more, the driver waits
	// inside a call and keeps a core busy. togetherBytes limits their total size, so that large
	// frames are waited for one by one.
	maxTogether, togetherBytes = 4, 4 << 20
)

// decoder is a parser and a decoder of libnvcuvid, with a CUDA stream. It belongs to one goroutine.
type decoder struct {
	backend       *Backend
	caps          decodeCaps
	entry         video.SampleEntry
	elementary    *video.Elementary
	parser        uintptr
	user          uintptr // identifies the decoder in callbacks
	handle        uintptr // the driver's decoder; 0 before the first packet
	stream        uintptr
	format        streamFormat // format of the stream that handle decodes
	surfaceCount  int32        // surfaces of handle
	framesPerWait int          // number of frames that one wait covers

	// The current packet.
	packet      sourcePacket
	packetBytes []byte
	unwanted    bool  // the caller does not need its frame
	surface     int32 // surface of its frame, or none
	callbackErr error // error of a callback

	newestSurface int32 // surface of the last decode call; the next packet does not reset it

	closed bool
	broken bool // a driver call failed; the decoder is not reused

	needsParameters  bool            // the next packet must include the parameter sets
	pending          []pendingFrame  // frames that were sent and not yet received
	delivering       bool            // Receive returns pending frames
	engineDone       bool            // the engine has decoded the current and all pending frames
	frame            frame           // the frame that was received last
	mapped           []mappedSurface // surfaces of received frames that are still mapped
	backendMayAccess bool            // the backend's stream may still access mapped surfaces
	usualWait        time.Duration   // running average of the wait per frame
	// reference surfaces decoded since the last checked frame, in decode order; none marks a
	// surface that is already checked
	unchecked []int32
}

// pendingFrame is a frame that was sent to a decoder.
type pendingFrame struct {
	surface int32
	number  int64
	// number of entries of decoder.unchecked that were added up to this frame
	unchecked int
	mapping   mapping
	decodeErr error // decode error, if the surface was checked before the frame was received
}

// mapping is the device memory of a mapped surface.
type mapping struct {
	addr   uintptr // 0: the surface is not mapped
	pitch  int     // bytes from one row to the next
	stream uintptr // the CUDA stream that the surface was mapped on
}

// mappedSurface is the mapped surface of a received frame. It may be unmapped after the fence of
// its last queued reader has passed.
type mappedSurface struct {
	addr       uintptr
	lastReader fence
}

var (
	_ video.Skipper = (*decoder)(nil)
	_ video.Within  = (*decoder)(nil)
	_ video.Holder  = (*decoder)(nil)
)

// Within runs f with the device's context current, which makes several calls in a row cheaper.
func (d *decoder) Within(f func()) { d.backend.driver.withContext(f) }

// openParser creates the stream and the parser. The driver's decoder is created at the first
// packet, when its format is known.
func (d *decoder) openParser() (err error) {
	if d.stream, err = d.backend.driver.newStream(); err != nil {
		return err
	}
	p := &parserParams{codec: d.caps.codec, surfaces: 1}
	d.parser, err = d.backend.driver.newParser(p, d)
	d.user = p.user // set by newParser
	return err
}

func (d *decoder) Send(sample []byte, number int64) (err error) {
	d.backend.driver.withContext(func() { err = d.sendPacket(sample, number, false) })
	return err
}

// SendUnwanted sends a packet whose frame the caller does not need. The engine skips the frame if
// no other frame refers to it.
func (d *decoder) SendUnwanted(sample []byte, number int64) (err error) {
	d.backend.driver.withContext(func() { err = d.sendPacket(sample, number, true) })
	return err
}

// sendPacket converts a sample to a packet and passes it to the parser.
func (d *decoder) sendPacket(sample []byte, number int64, unwanted bool) (err error) {
	if d.closed {
		return closedError()
	}
	if d.packetBytes,
		err = d.elementary.Packet(d.packetBytes[:0], sample, d.needsParameters); err != nil {
		return err
	}
	if len(d.packetBytes) == 0 {
		return robocache.Malformed(opDecode, nil, "an empty packet")
	}
	d.needsParameters, d.unwanted, d.surface, d.engineDone = false, unwanted, none, false
	d.packet = sourcePacket{
		flags:     timestamped | wholeFrame,
		size:      uint64(len(d.packetBytes)),
		data:      unsafe.Pointer(unsafe.SliceData(d.packetBytes)),
		timestamp: number,
	}
	return d.parseCurrent()
}

// parseCurrent passes the current packet to the parser, and adds its frame to the pending ones.
func (d *decoder) parseCurrent() error {
	err := d.backend.driver.parsePacket(d.parser, &d.packet)
	d.packet.data = nil
	if d.callbackErr != nil { // the cause: the parser itself only reports that it stopped
		err, d.callbackErr = d.callbackErr, nil
	}
	d.broken = d.broken || err != nil
	ended := d.packet.flags&endOfStream != 0
	if err == nil && d.surface != none && !d.unwanted && !ended {
		d.pending = append(
			d.pending,
			pendingFrame{
				surface:   d.surface,
				number:    d.packet.timestamp,
				unchecked: len(d.unchecked),
			},
		)
	}
	return err
}

// failCallback stores err in callbackErr, unless an earlier error is stored. The driver call that
// caused the callback returns it. failCallback returns the callback result that stops the parser.
func (d *decoder) failCallback(err error) int32 {
	if d.callbackErr == nil {
		d.callbackErr = err
	}
	return 0
}

// onSequence is called by the parser when a stream begins or changes its format. It returns the
// number of surfaces.
func (d *decoder) onSequence(f *streamFormat) int32 {
	if d.handle != 0 {
		if *f != d.format {
			return d.failCallback(d.backend.unsupported("the stream changes its format", "", ""))
		}
		return d.surfaceCount
	}
	if err := d.backend.checkFormat(&d.caps, f); err != nil {
		return d.failCallback(err)
	}
	d.framesPerWait = min(max(togetherBytes/int(f.width*f.height*3/2), 1), maxTogether)
	d.format, d.surfaceCount = *f, int32(f.surfaces)+int32(max(spareSurfaces, d.framesPerWait))
	handle, err := d.backend.driver.newDecoder(&createInfo{
		width:          uint64(f.width),
		height:         uint64(f.height),
		surfaces:       uint64(d.surfaceCount),
		codec:          f.codec,
		chroma:         f.chroma,
		flags:          preferEngines,
		maxWidth:       uint64(f.width),
		maxHeight:      uint64(f.height),
		shown:          rect16{right: int16(f.width), bottom: int16(f.height)},
		targetWidth:    uint64(f.width),
		targetHeight:   uint64(f.height),
		outputSurfaces: uint64(d.maxMapped()),
	})
	if err != nil {
		return d.failCallback(err)
	}
	d.handle = handle
	return d.surfaceCount
}

// callbackDone is the result of a callback after which the parser continues.
const callbackDone = 1

// onDecode is called by the parser for each frame to decode. It skips an unwanted frame to which no
// other frame refers. It keeps the surfaces of other frames in d.unchecked until their status is
// checked.
func (d *decoder) onDecode(p *decodeParams) int32 {
	if p.field != 0 {
		return d.failCallback(d.backend.unsupported("interlaced frames", "", ""))
	}
	// Only in H.264 does the flag mean that no other frame refers to this one.
	isUnreferenced := p.reference == 0 && d.entry.Codec == video.H264
	if d.unwanted && isUnreferenced {
		return callbackDone
	}
	if err := d.vacateSurface(p.surface); err != nil {
		return d.failCallback(err)
	}
	if err := d.backend.driver.decodePicture(d.handle, p); err != nil {
		return d.failCallback(err)
	}
	d.surface, d.newestSurface = p.surface, p.surface
	if !isUnreferenced {
		d.unchecked = append(d.unchecked, p.surface)
	}
	return callbackDone
}

// onDisplay is called by the parser when a frame is to be displayed. It is used for VP9 packets
// that display an earlier frame and decode none. Other calls are ignored.
func (d *decoder) onDisplay(s *shownInfo) int32 {
	if s != nil && d.entry.Codec == video.VP9 && d.surface == none &&
		s.timestamp == d.packet.timestamp {
		d.surface = s.surface
	}
	return callbackDone
}

// vacateSurface prepares a surface for its next frame, because the driver reports only the status
// of a surface's last frame. The surface of a pending frame is mapped, which copies it. The status
// of a frame that others may refer to is checked now.
func (d *decoder) vacateSurface(surface int32) error {
	pendingAt := slices.IndexFunc(
		d.pending,
		func(x pendingFrame) bool { return x.surface == surface },
	)
	uncheckedAt := slices.Index(d.unchecked, surface)
	if pendingAt < 0 && uncheckedAt < 0 {
		return nil
	}
	status := d.awaitSurface(surface, 1)
	if uncheckedAt >= 0 {
		d.unchecked[uncheckedAt] = none
	}
	if pendingAt < 0 { // no frame to deliver, so only the status matters
		if status == statusRuns { // a later query would report the next frame
			return d.engineError(status)
		}
		return d.statusError(status)
	}
	stream, err := d.backend.sharedStream()
	if err != nil {
		return err
	}
	for ; pendingAt < len(d.pending); pendingAt++ { // a VP9 frame may be pending twice
		x := &d.pending[pendingAt]
		if x.surface != surface {
			continue
		}
		x.surface = none
		x.mapping, err = d.mapSurface(surface, stream)
		if err != nil {
			return err
		}
		if status == statusRuns { // mapping it waited until it was decoded
			status = d.backend.driver.surfaceStatus(d.handle, surface)
		}
		// Frames that refer to it come later and fail with it.
		x.decodeErr = d.statusError(status)
	}
	return nil
}

// maxMapped returns the maximum number of surfaces that are mapped at once. It is twice the number
// of frames of one wait, so that operations on received frames can be queued.
func (d *decoder) maxMapped() int { return 2 * d.framesPerWait }

// mapSurface maps a decoded surface. The engine copies the surface on the stream. If maxMapped
// surfaces are mapped already, it first unmaps surfaces of frames that were received earlier.
func (d *decoder) mapSurface(surface int32, stream uintptr) (p mapping, err error) {
	mappedCount := len(d.mapped)
	for i := range d.pending {
		if d.pending[i].mapping.addr != 0 {
			mappedCount++
		}
	}
	if mappedCount >= d.maxMapped() {
		if err := d.unmapSome(); err != nil {
			return p, err
		}
	}
	// The backend's stream may still read memory that the decoder's stream overwrites.
	if d.backendMayAccess && stream == d.stream {
		if err := d.backend.withStream(d.backend.driver.waitStream); err != nil {
			return p, err
		}
		d.backendMayAccess = false
	}
	p.addr, p.pitch, err = d.backend.driver.mapFrame(
		d.handle,
		surface,
		&mapParams{progressive: 1, stream: stream},
	)
	p.stream = stream
	d.backendMayAccess = d.backendMayAccess || stream != d.stream
	return p, err
}

// unmapSome unmaps surfaces of received frames. If queued operations read all of them, it first
// launches these operations.
func (d *decoder) unmapSome() error {
	n := len(d.mapped)
	err := d.unmapLaunched()
	if err == nil && len(d.mapped) == n {
		if err = d.backend.queue.Flush(); err == nil {
			err = d.unmapLaunched()
		}
	}
	return err
}

// unmapLaunched unmaps the surfaces whose readers have been launched. The backend's stream runs
// these readers before any later work that overwrites the surface.
func (d *decoder) unmapLaunched() (err error) {
	d.mapped = slices.DeleteFunc(d.mapped, func(x mappedSurface) bool {
		if !d.backend.queue.Passed(x.lastReader) {
			return false
		}
		if failed := d.backend.driver.unmapFrame(d.handle, x.addr); err == nil {
			err = failed
		}
		return true
	})
	d.broken = d.broken || err != nil
	return err
}

// Receive returns the next pending frame if enough frames are pending, or if DeliverPending was
// called. Its pixels are copied when they are first requested.
func (d *decoder) Receive() (video.Frame, int64, bool, error) {
	if d.closed {
		return nil, 0, false, closedError()
	}
	hasEnough := d.delivering || len(d.pending) >= d.framesPerWait
	d.delivering = hasEnough && len(d.pending) > 0
	if !d.delivering {
		return nil, 0, false, nil
	}
	d.frame.pendingFrame, d.frame.onHost, d.frame.isChecked = d.pending[0], false, false
	d.pending = slices.Delete(d.pending, 0, 1)
	d.delivering = len(d.pending) > 0
	if addr := d.frame.mapping.addr; addr != 0 {
		d.mapped = append(d.mapped, mappedSurface{addr: addr})
	}
	return &d.frame, d.frame.number, true, nil
}

// DeliverPending makes Receive return all pending frames.
func (d *decoder) DeliverPending() { d.delivering = true }

// Drain has the effect of DeliverPending, because every packet has already produced its frame.
func (d *decoder) Drain() error {
	if d.closed {
		return closedError()
	}
	d.DeliverPending()
	return nil
}

// Flush ends the stream for the parser. The next packet is sent with its parameter sets.
func (d *decoder) Flush() {
	d.dropPending()
	d.surface, d.needsParameters, d.delivering = none, true, false
	d.unchecked, d.frame.unchecked = d.unchecked[:0], 0
	if d.parser != 0 {
		d.packet = sourcePacket{flags: endOfStream}
		_ = d.parseCurrent() // an error here also makes the next packet fail
	}
}

// dropPending drops the pending frames and unmaps their surfaces. It launches nothing. Surfaces of
// received frames therefore stay mapped if operations that read them are still queued.
func (d *decoder) dropPending() {
	for _, x := range d.pending {
		if x.mapping.addr != 0 {
			d.mapped = append(d.mapped, mappedSurface{addr: x.mapping.addr})
		}
	}
	d.pending = d.pending[:0]
	_ = d.unmapLaunched() // an error marks the decoder as broken
}

// MemoryBytes returns the memory that the decoder occupies, most of it on the device.
func (d *decoder) MemoryBytes() int64 {
	surfaceBytes := int64(d.format.width) * int64(d.format.height) * 3 / 2 // 4:2:0
	surfaces := int64(int(d.surfaceCount) + d.maxMapped())
	const otherBytes = 1 << 20 // an estimate
	return surfaceBytes*surfaces + int64(len(d.frame.hostBytes)+cap(d.packetBytes)) + otherBytes
}

// Close keeps a working decoder for the next stream with an equal sample entry. Creating one takes
// 35 ms, and the driver creates only one at a time.
func (d *decoder) Close() {
	if d.closed {
		return
	}
	d.closed = true
	if d.handle != 0 && !d.broken {
		d.Flush()
		if !d.broken && d.backend.keepIdle(d) {
			return
		}
	}
	d.releaseAll()
}

// releaseAll frees everything that the decoder has allocated.
func (d *decoder) releaseAll() {
	d.dropPending()
	_ = d.backend.queue.Flush() // queued operations may read its surfaces
	_ = d.unmapLaunched()
	if d.handle != 0 {
		d.backend.driver.freeDecoder(d.handle)
	}
	if d.parser != 0 {
		d.backend.driver.freeParser(d.parser, d.user)
	}
	if d.frame.hostBytes != nil {
		d.backend.driver.freeHost(d.frame.hostBytes)
	}
	if d.stream != 0 {
		d.backend.driver.freeStream(d.stream)
	}
	d.handle, d.parser, d.stream, d.frame.hostBytes = 0, 0, 0, nil
}

func closedError() error {
	return robocache.Misuse(opDecode, nil, "the decoder is closed")
}
