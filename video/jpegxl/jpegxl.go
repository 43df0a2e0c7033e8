package jpegxl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goatnote-inc/robocache"
)

const (
	maxFrames    = 4096                 // maximum number of frames in a stream
	timePerValue = 5 * time.Microsecond // about 100 times the decoding time of one value
)

// slack is the decoding time that does not depend on the number of values.
var slack = 10 * time.Second

// Decode decodes all images of a stream to dst, one after the other, row by row, channels last,
// little-endian. size is the number of bytes of an element, 1 or 2. The number of channels follows
// from len(dst).
func Decode(ctx context.Context, dst, src []byte, size int) (err error) {
	if size != 1 && size != 2 {
		return robocache.Unsupported(opDecode, nil, "elements of %d bytes", size).
			Expected("integers of 8 or 16 bits", "")
	}
	if len(src) == 0 {
		return malformedStream("the stream is empty")
	}
	e, err := startEngine()
	if err != nil {
		return err
	}
	in, err := e.acquireInstance(ctx)
	if err != nil {
		return err
	}
	// The time limit starts here, so that waiting for a core does not count.
	limit, cancel := context.WithTimeout(ctx, slack+time.Duration(len(dst)/size)*timePerValue)
	defer cancel()
	err = in.decodeImages(limit, dst, src, size)
	e.releaseInstance(in, err == nil)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return robocache.ResourceLimit(
			opDecode,
			nil,
			"decoding %d bytes exceeds the time limit for %d values",
			len(src),
			len(dst)/size,
		)
	}
	return err
}

const opDecode = "decode JPEG XL"

func malformedStream(format string, args ...any) error {
	return robocache.Malformed(opDecode, nil, format, args...)
}

// streamInfo is the description of the images in a stream.
type streamInfo struct{ width, height, bits, frames uint32 }

// channelsFor returns the number of channels that dst has per pixel.
func (i streamInfo) channelsFor(values int) (int, error) {
	var pixels int64
	if i.width <= 1<<30 && i.height <= 1<<30 && i.frames <= maxFrames {
		// otherwise the number of pixels might not fit into an int64
		if pixels = int64(i.width) * int64(i.height); pixels <= int64(values) {
			pixels *= int64(i.frames)
		}
	}
	if pixels <= 0 || pixels > int64(values) || int64(values)%pixels != 0 ||
		int64(values)/pixels > 4 {
		return 0, robocache.Malformed(opDecode, nil, "").
			Expected(
				fmt.Sprintf("images of %d values", values),
				fmt.Sprintf("%d of %d×%d pixels", i.frames, i.height, i.width),
			)
	}
	return int(int64(values) / pixels), nil
}

// pickChannels copies channels of R, G, B, A to dst: all 4, 3 without alpha, 2 for grey and alpha,
// or 1 for grey. It returns an error if the channels that it drops contain information. The words
// of rgba are big-endian, of size bytes. It may change rgba.
func pickChannels(dst, rgba []byte, channels, size int) error {
	if size == 2 {
		for i := 0; i+1 < len(rgba); i += 2 {
			rgba[i], rgba[i+1] = rgba[i+1], rgba[i]
		}
	}
	if channels == 4 {
		copy(dst, rgba)
		return nil
	}
	// opaque is 255 if all bytes of alpha are 255. grey is 0 if R, G and B are equal in all pixels.
	opaque, grey := byte(255), byte(0)
	if size == 1 && channels == 3 { // the most common case
		for i, k := 0, 0; i+3 < len(rgba) && k+2 < len(dst); i, k = i+4, k+3 {
			p, q := rgba[i:i+4:i+4], dst[k:k+3:k+3]
			q[0], q[1], q[2] = p[0], p[1], p[2]
			opaque &= p[3]
		}
		rgba = nil // no pixels are left for the loop below
	}
	colour := size // bytes per pixel in dst without alpha
	if channels == 3 {
		colour = 3 * size
	}
	for w, k := 4*size, 0; len(rgba) >= w; rgba, k = rgba[w:], k+channels*size {
		copy(dst[k:], rgba[:colour])
		alpha := rgba[3*size : w]
		if channels == 2 {
			copy(dst[k+size:], alpha)
		}
		for b := range size {
			if channels != 2 {
				opaque &= alpha[b]
			}
			if channels < 3 {
				grey |= rgba[b] ^ rgba[size+b] | rgba[b] ^ rgba[2*size+b]
			}
		}
	}
	switch {
	case opaque != 255:
		return malformedStream("the images have an alpha channel, expected %d channels", channels)
	case grey != 0:
		return malformedStream("the images have color, expected %d channels", channels)
	}
	return nil
}
