package unzstd

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/klauspost/compress/zstd"
)

var decoders = map[Sums]*sync.Pool{Verify: newDecoderPool(false), Ignore: newDecoderPool(true)}

func newDecoderPool(ignore bool) *sync.Pool {
	return &sync.Pool{New: func() any {
		d, err := zstd.NewReader(
			nil,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxWindow(15<<28),
			zstd.IgnoreChecksum(ignore),
		)
		if err != nil {
			panic(err)
		}
		return d
	}}
}

// unzstdPure implements unzstdFrames with klauspost/compress. This decoder cannot stop early. For a
// prefix, unzstdPure therefore first decodes only the blocks that most likely contain it.
func unzstdPure(dst, src []byte, need int, sums Sums) (int, error) {
	if end := likelyPrefixEnd(src, need); need < needAll && end > 0 {
		if n, _ := decodeAll(dst, src[:end], sums); n >= need {
			return n, nil
		}
	}
	return decodeAll(dst, src, sums)
}

func decodeAll(dst, src []byte, sums Sums) (int, error) {
	p := decoders[sums]
	d := p.Get().(*zstd.Decoder)
	defer p.Put(d)
	out, err := d.DecodeAll(src, dst[:0:len(dst)]) // WithDecodeAllCapLimit limits the output to cap
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > len(dst) {
		err = ErrRoom
	} else if err != nil {
		err = errDamaged
	}
	n := min(len(out), len(dst))
	if n > 0 && &out[0] != &dst[0] {
		copy(dst, out[:n])
	}
	return n, err
}

// likelyPrefixEnd returns the length of the blocks of the first frame that most likely contain need
// bytes. It returns 0 if all of b must be decoded.
func likelyPrefixEnd(b []byte, need int) int {
	const block = 128 << 10
	if len(b) < 6 || binary.LittleEndian.Uint32(b) != 0xFD2FB528 {
		return 0
	}
	d := b[4]
	single := d >> 5 & 1
	at := 5 + int(1-single) + [...]int{0, 1, 2, 4}[d&3] + [...]int{int(single), 2, 4, 8}[d>>6]
	for have := 0; len(b)-at >= 3; {
		h := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		last, kind, n := h&1 == 1, h>>1&3, h>>3
		at += 3
		switch kind {
		case 0: // a raw block
			at, have = at+n, have+n
		case 1: // n copies of one byte
			at, have = at+1, have+n
		default: // a compressed block; writers usually fill their blocks
			at, have = at+n, have+block
		}
		if last || at > len(b) {
			return 0
		}
		if have >= need {
			return at
		}
	}
	return 0
}
