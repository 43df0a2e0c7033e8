package live

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// Sample is one decoded value of a stream.
type Sample struct {
	Stamp   int64 // ns; when it was measured
	Arrival int64 // ns; when it can be used, or Now
	// Data holds the numbers of a row in the contract's dtype, little-endian. Rows of varying length
	// hold their entries one after the other.
	Data      []byte
	Text      string              // of a text stream
	Still     *robocache.FrameRef // of a camera: an encoded image, or pixels
	Frame     video.PlanarFrame   // of a camera: a decoded frame of video
	IsMissing bool                // the row holds no value; for streams whose rows may lack one

	isOfMessage bool // it was decoded from a message, which is recorded itself
}

// Push adds a sample of a stream. It does not keep x's memory. Safe for concurrent use.
func (l *Live) Push(key string, x *Sample) error {
	if l.isClosed.Load() {
		return errClosed()
	}
	s := l.byKey[key]
	if s == nil {
		return robocache.NotFound("live", robocache.Where{"stream": key},
			"the contract has no such stream").
			WithHint("%s", robocache.Nearest(key, l.Keys()))
	}
	arrival := x.Arrival
	if arrival == Now {
		arrival = time.Now().UnixNano()
	}
	if s.Key == "task" {
		l.SetTask(x.Text)
		return nil
	}
	err := s.push(x.Stamp, arrival, func(to *sample) error {
		if err := l.fill(s, to, x); err != nil || x.isOfMessage {
			return err
		}
		return l.recorder.Load().addSample(s, x, arrival)
	})
	if err != nil {
		return err
	}
	l.clock.note(arrival)
	select {
	case l.arrived <- struct{}{}:
	default:
	}
	return nil
}

// Keys returns the keys of the streams in the order of the contract.
func (l *Live) Keys() []string {
	var keys []string
	for _, s := range l.streams {
		keys = append(keys, s.Key)
	}
	return keys
}

// fill copies a value into a sample, or returns an error if the value does not fit the stream.
func (l *Live) fill(s *streamBuffer, to *sample, x *Sample) error {
	mismatch := func(got string) error {
		return robocache.Malformed("live", nil, "the value does not fit the stream").
			Expected(fmt.Sprintf("%s, %v %v", s.Kind, s.DType, s.Shape), got)
	}
	switch {
	case x.IsMissing && s.Masked:
		to.isMissing = true
		return nil
	case x.IsMissing:
		return mismatch("a row without a value")
	case s.Kind == robocache.KindVideo || s.Kind == robocache.KindImage:
		return l.fillFrame(s, to, x)
	case s.Kind == robocache.KindText || s.Kind == robocache.KindEvent:
		to.text = x.Text
		return nil
	case x.Data == nil:
		return mismatch("no numbers")
	case s.Ragged():
		entry := s.Elements() * s.DType.Size()
		if entry == 0 || len(x.Data)%entry != 0 {
			return mismatch(strconv.Itoa(len(x.Data)) + " bytes")
		}
		to.count = len(x.Data) / entry
	case len(x.Data) != s.RowBytes():
		return mismatch(strconv.Itoa(len(x.Data)) + " bytes")
	case s.onNaN != options.NaNAllow && !isFinite(x.Data, s.DType):
		if s.onNaN == options.NaNMask && s.Masked {
			to.isMissing = true
			return nil
		}
		return robocache.Malformed("live", nil, "a number that is not finite").
			WithHint("A contract of a loader with %s accepts it.",
				robocache.Option("on_nan", "allow"))
	}
	to.data = append(to.data, x.Data...)
	return nil
}

// fillFrame copies a frame into a sample.
func (l *Live) fillFrame(s *streamBuffer, to *sample, x *Sample) error {
	resizes := !l.Contract.Options.DependsOnSize()
	if x.Frame != nil {
		w, h := x.Frame.Size()
		info, ok := x.Frame.PlaneInfo()
		if !ok {
			return robocache.Unsupported("live", nil, "frames in this pixel format")
		}
		if err := s.checkFrame(w, h, resizes); err != nil {
			return err
		}
		n := info.Bytes()
		if cap(to.data) < n {
			to.data = make([]byte, n)
		}
		to.data = to.data[:n]
		to.planes, to.hasPlanes = info, true
		return x.Frame.CopyPlanes(to.data)
	}
	ref := x.Still
	if ref == nil || ref.Missing {
		if !s.Masked {
			return robocache.Malformed("live", nil, "a camera's sample without an image")
		}
		to.isMissing = true
		return nil
	}
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if err := s.checkFrame(info.Width, info.Height, resizes); err != nil {
		return err
	}
	if ref.Raw == nil {
		to.data = append(to.data, ref.Encoded...)
		to.still.Encoded = to.data
		return nil
	}
	to.data = append(to.data, ref.Raw.Pix...)
	to.pixels = *ref.Raw
	to.pixels.Pix = to.data
	to.still.Raw = &to.pixels
	return nil
}

// isFinite reports whether all numbers of a row are finite.
func isFinite(row []byte, d robocache.DType) bool {
	switch d {
	case robocache.Float16, robocache.BFloat16:
		exponent := uint16(0x7c00)
		if d == robocache.BFloat16 {
			exponent = 0x7f80
		}
		for ; len(row) >= 2; row = row[2:] {
			if binary.LittleEndian.Uint16(row)&exponent == exponent {
				return false
			}
		}
	case robocache.Float32:
		for ; len(row) >= 4; row = row[4:] {
			if bits := binary.LittleEndian.Uint32(row); bits&0x7f800000 == 0x7f800000 {
				return false
			}
		}
	case robocache.Float64:
		for ; len(row) >= 8; row = row[8:] {
			if x := math.Float64frombits(binary.LittleEndian.Uint64(row)); x-x != 0 {
				return false
			}
		}
	}
	return true
}
