package jpegxl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goatnote-inc/robocache"
)

const (
	maxFrames = 4096                 // of one stream
	perValue  = 5 * time.Microsecond // a hundred times what a value of dst takes
)

var slack = 10 * time.Second // what decoding may take beside

// Decode decodes all images of a stream into dst, one after the other, row by row, channels last,
// little-endian. size is that of an element: 1 or 2 bytes. The number of channels is what len(dst)
// leaves for a pixel.
func Decode(ctx context.Context, dst, src []byte, size int) (err error) {
	if size != 1 && size != 2 {
		return robocache.Unsupported(op, nil, "elements of %d bytes", size).
			Expected("integers of 8 or 16 bits", "")
	}
	if len(src) == 0 {
		return malformed("no bytes")
	}
	e, err := start()
	if err != nil {
		return err
	}
	in, err := e.take(ctx)
	if err != nil {
		return err
	}
	// The time begins with the decoding: an image that waits for others is none the worse for it.
	limit, cancel := context.WithTimeout(ctx, slack+time.Duration(len(dst)/size)*perValue)
	defer cancel()
	err = in.decode(limit, dst, src, size)
	e.give(in, err == nil)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return robocache.ResourceLimit(
			op,
			nil,
			"%d bytes take more time than %d values may",
			len(src),
			len(dst)/size,
		)
	}
	return err
}

const op = "decode JPEG XL"

func malformed(format string, args ...any) error {
	return robocache.Malformed(op, nil, format, args...)
}

// info is what a stream says of itself.
type info struct{ width, height, bits, frames uint32 }

// channels gives the channels that dst has for each pixel.
func (i info) channels(values int) (int, error) {
	var pixels int64
	if i.width <= 1<<30 && i.height <= 1<<30 && i.frames <= maxFrames {
		// else the frames' might not fit an int64
		if pixels = int64(i.width) * int64(i.height); pixels <= int64(values) {
			pixels *= int64(i.frames)
		}
	}
	if pixels <= 0 || pixels > int64(values) || int64(values)%pixels != 0 ||
		int64(values)/pixels > 4 {
		return 0, robocache.Malformed(op, nil, "").
			Expected(fmt.Sprintf("images of %d values", values), fmt.Sprintf("%d of %d×%d pixels", i.frames, i.height, i.width))
	}
	return int(int64(values) / pixels), nil
}

// pick takes the wanted channels out of R, G, B, A of big-endian words of size bytes.
func pick(dst, rgba []byte, channels, size int) error {
	if size == 2 {
		for i := 0; i+1 < len(rgba); i += 2 {
			rgba[i], rgba[i+1] = rgba[i+1], rgba[i]
		}
	}
	if channels == 4 {
		copy(dst, rgba)
		return nil
	}
	opaque, grey := byte(255), byte(0) // and, or over all pixels
	if size == 1 && channels == 3 {
		for i, k := 0, 0; i+3 < len(rgba) && k+2 < len(dst); i, k = i+4, k+3 {
			p, q := rgba[i:i+4:i+4], dst[k:k+3:k+3]
			q[0], q[1], q[2] = p[0], p[1], p[2]
			opaque &= p[3]
		}
		rgba = nil
	}
	colour := size // of a pixel
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
		return malformed("the images have an alpha channel, %d channels are expected", channels)
	case grey != 0:
		return malformed("the images have colours, %d channels are expected", channels)
	}
	return nil
}
