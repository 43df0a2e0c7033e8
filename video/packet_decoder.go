package video

import (
	"cmp"
	"errors"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// PacketDecoder decodes the packets of a video one by one, as they are received. Which packets have
// a frame that can be decoded, and which are errors, is defined by Stream. The packets from a key
// frame to the next are decoded alone, as a Pool decodes a group.
//
// After an error, Lost or Flush, decoding continues at the next key frame. The packet in which the
// size of the frames changes is ErrUnsupported, and the packets after it form a new stream. The
// same holds for parameter sets that change without being repeated in key frames. If the codec
// changes, the caller must use another PacketDecoder.
//
// A PacketDecoder must be used by one goroutine at a time. The caller must call Close.
type PacketDecoder struct {
	codec   Codec
	limits  Limits
	backend Backend
	colour  *Colour
	stream  *Stream
	decoder Decoder // nil: opened at the next key frame
	sample  []byte  // the packet in the form of a file
	packets int     // number of packets so far
	waiting []int   // packets in the decoder whose frames were not received yet
}

// NewPacketDecoder returns a decoder without packets. It returns ErrUnsupported if this build does
// not decode the codec, or if packets of the codec are not supported.
func NewPacketDecoder(codec Codec, limits Limits) (*PacketDecoder, error) {
	stream, err := NewStream(codec, limits)
	if err != nil {
		return nil, err
	}
	backend, err := ActiveBackend()
	if err == nil {
		err = backend.Supports(codec)
	}
	if err != nil {
		return nil, err
	}
	return &PacketDecoder{codec: codec, limits: limits, backend: backend, stream: stream}, nil
}

// SetColour sets the colors of the frames, as Stream.SetColour does. It must be called before the
// first packet.
func (d *PacketDecoder) SetColour(c *Colour) { d.colour = c }

// Decode decodes the next packet and calls emit for each frame that is ready. number counts the
// calls of Decode from 0 and identifies the frame's packet. The frame is valid during that call.
//
// A packet before the first key frame or after a loss has no frame and is no error; Absent counts
// these packets. An error names its packet, which may be an earlier one for which the decoder
// returned no frame. An error of emit is returned unchanged.
func (d *PacketDecoder) Decode(packet []byte, emit func(number int, pic Frame) error) error {
	number := d.packets
	d.packets++
	p, decodable, err := d.stream.inspectNext(packet)
	if err == nil {
		err = d.stream.checkSets()
	}
	if err != nil && !errors.Is(err, robocache.ErrMalformed) {
		d.restart(packet)
	}
	if err != nil || !decodable {
		return robocache.At(err, packetAt(number))
	}
	var groupErr error // of an earlier packet
	if p.isKey {
		if groupErr, err = d.endGroup(emit); err != nil {
			return err
		}
	}
	if err := d.send(packet, p.size, number); err != nil {
		d.Close()
		return robocache.At(err, packetAt(number))
	}
	decodeErr, emitErr := d.receive(emit)
	if d.decoder == nil { // receive closed it after an error
		d.Lost()
	}
	return cmp.Or(emitErr, decodeErr, groupErr)
}

// send sends a packet of the current group to the decoder. size is its size as a sample of a file.
func (d *PacketDecoder) send(packet []byte, size, number int) error {
	if d.decoder == nil {
		if err := d.openDecoder(); err != nil {
			return err
		}
	}
	if cap(d.sample) > 2*maxRead {
		d.sample = nil
	}
	d.sample = slices.Grow(d.sample[:0], size)[:size]
	if err := repackPacket(d.codec, d.sample, packet); err != nil {
		return err
	}
	if len(d.waiting) == reach {
		return noFrame(packetAt(d.waiting[0]))
	}
	d.waiting = append(d.waiting, number)
	return d.decoder.Send(d.sample, int64(number))
}

// receive emits the frames that are ready. It returns two errors. decodeErr is the error of the
// decoder, which is then closed, or the error for a packet that has no frame. emitErr is the error
// of emit.
func (d *PacketDecoder) receive(
	emit func(number int, pic Frame) error,
) (decodeErr, emitErr error) {
	for {
		pic, key, ok, err := d.decoder.Receive()
		if err != nil {
			decodeErr = cmp.Or(decodeErr, robocache.At(err, packetAt(d.firstWaiting())))
			d.closeDecoder()
			return decodeErr, nil
		}
		if !ok {
			return decodeErr, nil
		}
		// Frames come in the order of their packets, so the packets before this one have none.
		number := int(key)
		for len(d.waiting) > 0 && d.waiting[0] <= number {
			if d.waiting[0] == number {
				emitErr = emit(number, pic)
			} else {
				decodeErr = cmp.Or(decodeErr, noFrame(packetAt(d.waiting[0])))
			}
			d.waiting = slices.Delete(d.waiting, 0, 1)
		}
		if emitErr != nil {
			d.Lost()
			return decodeErr, emitErr
		}
	}
}

// firstWaiting returns the first packet that waits for its frame, or the last packet.
func (d *PacketDecoder) firstWaiting() int {
	if len(d.waiting) > 0 {
		return d.waiting[0]
	}
	return d.packets - 1
}

// endGroup emits the frames that are still in the decoder, and prepares the decoder for a key
// frame. The results are those of receive.
func (d *PacketDecoder) endGroup(
	emit func(number int, pic Frame) error,
) (decodeErr, emitErr error) {
	if d.decoder != nil && len(d.waiting) > 0 {
		if err := d.decoder.Drain(); err != nil {
			decodeErr = robocache.At(err, packetAt(d.waiting[0]))
			d.closeDecoder()
		} else if decodeErr, emitErr = d.receive(emit); emitErr != nil {
			return decodeErr, emitErr
		}
	}
	if len(d.waiting) > 0 {
		decodeErr = cmp.Or(decodeErr, noFrame(packetAt(d.waiting[0])))
		d.waiting = d.waiting[:0]
	}
	if d.decoder != nil {
		d.decoder.Flush()
	}
	return decodeErr, nil
}

// Flush emits the frames that are still in the decoder. Decoding continues at the next key frame.
func (d *PacketDecoder) Flush(emit func(number int, pic Frame) error) error {
	d.Lost()
	decodeErr, emitErr := d.endGroup(emit)
	return cmp.Or(emitErr, decodeErr)
}

// Lost reports that a packet is missing here. Decoding continues at the next key frame.
func (d *PacketDecoder) Lost() { d.stream.Lost() }

// Absent returns how many packets had a frame that could not be decoded, as Stream.Absent does.
func (d *PacketDecoder) Absent() (early, cut int) { return d.stream.Absent() }

// MemoryBytes returns an estimate of the decoder's memory.
func (d *PacketDecoder) MemoryBytes() int64 {
	n := int64(cap(d.sample) + 8*cap(d.waiting))
	if d.decoder != nil {
		n += d.decoder.MemoryBytes()
	}
	return n
}

// Close frees the decoder's memory and discards frames that were not emitted. A later Decode opens
// the decoder again at the next key frame.
func (d *PacketDecoder) Close() {
	d.Lost()
	d.closeDecoder()
	d.sample = nil
}

// closeDecoder closes the decoder, if there is one, and the frames in it are lost.
func (d *PacketDecoder) closeDecoder() {
	if d.decoder != nil {
		d.decoder.Close()
	}
	d.decoder, d.waiting = nil, d.waiting[:0]
}

// openDecoder opens a decoder with the sample entry that a file of the packets has.
func (d *PacketDecoder) openDecoder() error {
	d.stream.SetColour(d.colour)
	b := box{kind: entryKinds[d.codec].fourCC, data: d.stream.sampleEntry()[8:]}
	entry, err := (&boxParser{lim: d.stream.lim}).parseEntry(b)
	if err != nil {
		return err
	}
	decoder, err := d.backend.NewDecoder(&entry)
	if err == nil {
		d.decoder = decoder
	}
	return err
}

// restart begins a new stream with the parameter sets of packet.
func (d *PacketDecoder) restart(packet []byte) {
	d.Close()
	old := d.stream
	d.stream, _ = NewStream(d.codec, d.limits) // the codec was accepted before
	d.stream.framesBeforeKey, d.stream.framesAfterLoss = old.Absent()
	// An error is ignored here: the old stream returned it before.
	_, _ = d.stream.inspectPacket(packet)
}

// packetAt returns the location of an error in a packet.
func packetAt(number int) robocache.Where { return robocache.Where{"packet": number} }

// noFrame returns the error for a packet for which the decoder returned no frame.
func noFrame(where robocache.Where) error {
	return robocache.Malformed(
		opDecode,
		where,
		"the decoder returned no frame for this packet: the video is damaged here",
	)
}
