package blosc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/internal/inflate"
	"github.com/goatnote-inc/robocache/internal/unzstd"
)

const (
	headSize  = 16
	maxSplits = 16  // largest type size whose streams are compressed separately
	minStream = 128 // minimum number of elements of a block with separate streams
)

// flags in the header of a buffer
const (
	flagShuffle  = 1
	flagStored   = 2
	flagBits     = 4
	flagOneBlock = 16 // the streams of a block are compressed together
)

var names = [8]string{"blosclz", "lz4", "snappy", "zlib", "zstd", "codec 5", "codec 6", "codec 7"}

func bad(format string, args ...any) error {
	return robocache.Malformed("blosc", nil, format, args...)
}

// Size returns the decompressed size that a buffer declares.
func Size(src []byte) (int64, error) {
	if len(src) < headSize {
		return 0, bad("%d bytes are too few for a buffer", len(src))
	}
	return int64(binary.LittleEndian.Uint32(src[4:])), nil
}

// Decode decompresses a buffer of at most limit bytes.
func Decode(src []byte, limit int64) ([]byte, error) {
	n, err := Size(src)
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, robocache.ResourceLimit("blosc", nil, "").
			Expected(fmt.Sprintf("at most %d bytes", limit), fmt.Sprint(n))
	}
	le := binary.LittleEndian
	version, flags, typeSize := src[0], src[2], int(src[3])
	blockSize, packed := int64(le.Uint32(src[8:])), int64(le.Uint32(src[12:]))
	switch {
	case version != 1 && version != 2:
		return nil, robocache.Unsupported(
			"blosc",
			nil,
			"buffer format %d: blosc 1 writes 2",
			version,
		)
	case packed < headSize || packed > int64(len(src)):
		return nil, bad("%d bytes declared, there are %d", packed, len(src))
	case typeSize == 0:
		return nil, bad("elements of no size")
	}
	src = src[:packed]
	if flags&flagStored != 0 {
		if packed != headSize+n {
			return nil, bad("%d stored bytes in %d", n, packed)
		}
		return bytes.Clone(src[headSize:]), nil
	}
	if n == 0 {
		return nil, nil
	}
	if blockSize <= 0 || blockSize > n && blockSize > 1<<31 {
		return nil, bad("blocks of %d bytes", blockSize)
	}
	blockSize = min(blockSize, n)
	blocks := (n + blockSize - 1) / blockSize
	if headSize+4*blocks > packed {
		return nil, bad("%d blocks in %d bytes", blocks, packed)
	}
	// The ratio is limited by deflate at 1:1032. Other codecs stay far below that, except zstd,
	// whose frames are checked against their own size.
	d := decoder{
		src:       src,
		codec:     int(flags >> 5),
		typeSize:  typeSize,
		blockSize: int(blockSize),
		split: flags&flagOneBlock == 0 && typeSize <= maxSplits &&
			blockSize/int64(typeSize) >= minStream,
	}
	d.shuffle = flags&flagShuffle != 0 && typeSize > 1
	d.bits = flags&flagBits != 0 && int(blockSize) >= typeSize
	if d.codec != 0 && d.codec != 1 && d.codec != 3 && d.codec != 4 {
		return nil, robocache.Unsupported("blosc", nil, "packed by %s", names[d.codec]).
			WithHint("Supported are blosclz, lz4, lz4hc, zlib and zstd.")
	}
	dst := make([]byte, n)
	for i := range blocks {
		at := int64(int32(le.Uint32(src[headSize+4*i:])))
		to := min((i+1)*blockSize, n)
		if at < headSize || at > packed {
			return nil, bad("block %d begins at %d of %d", i, at, packed)
		}
		if err := d.decodeBlock(dst[i*blockSize:to], src[at:], to-i*blockSize < blockSize); err !=
			nil {
			return nil, robocache.At(err, robocache.Where{"block": i})
		}
	}
	if d.scratch != nil {
		scratches.Put(&d.scratch)
	}
	return dst, nil
}

type decoder struct {
	src                 []byte
	codec               int
	typeSize, blockSize int
	split               bool
	shuffle, bits       bool
	scratch             []byte
}

var scratches sync.Pool

// decodeBlock decompresses one block. Its streams follow each other in src.
func (d *decoder) decodeBlock(dst, src []byte, partial bool) error {
	to := dst
	if d.shuffle || d.bits {
		// one half for the streams, one for the planes of bitshuffle
		if room := 2 * d.blockSize; d.scratch == nil {
			if p, ok := scratches.Get().(*[]byte); ok && cap(*p) >= room {
				d.scratch = (*p)[:room]
			} else {
				d.scratch = make([]byte, room)
			}
		}
		to = d.scratch[:len(dst)]
	}
	parts := 1
	if d.split && !partial {
		parts = d.typeSize
	}
	size := len(dst) / parts
	if size*parts != len(dst) {
		return bad("%d bytes do not split into %d streams", len(dst), parts)
	}
	for i := range parts {
		if len(src) < 4 {
			return bad("the block is cut")
		}
		n := int64(int32(binary.LittleEndian.Uint32(src)))
		src = src[4:]
		if n < 0 || n > int64(len(src)) {
			return bad("a stream of %d bytes, %d are left", n, len(src))
		}
		if err := d.decodeStream(to[i*size:(i+1)*size], src[:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	switch {
	case d.shuffle:
		elements.Unshuffle(dst, to, d.typeSize)
	case d.bits:
		unshuffleBits(dst, to, d.scratch[d.blockSize:][:len(dst)], d.typeSize)
	}
	return nil
}

// decodeStream decompresses a stream. The result must fill dst.
func (d *decoder) decodeStream(dst, src []byte) error {
	if len(src) == len(dst) {
		copy(dst, src)
		return nil
	}
	n, err := 0, error(nil)
	switch d.codec {
	case 0:
		n, err = unpackLZ(dst, src)
	case 1:
		n, err = lz4.UncompressBlock(src, dst)
	case 3:
		return inflate.Zlib(dst, src)
	case 4:
		n, err = unzstd.Decode(dst, src, unzstd.Verify)
	}
	if err != nil || n != len(dst) {
		return robocache.Malformed(
			"blosc",
			nil,
			"%s does not give the %d bytes of a stream",
			names[d.codec],
			len(dst),
		).
			WithCause(err)
	}
	return nil
}

// maxDistance is the largest distance of a match with a short offset. A longer match adds
// maxDistance to a 16-bit offset.
const maxDistance = 8191

// unpackLZ decompresses blosclz, a byte-oriented LZ77 similar to FastLZ. A control byte c below 32
// is followed by c+1 literals. Any other control byte is a match, with the length in its upper
// three bits.
func unpackLZ(dst, src []byte) (int, error) {
	if len(src) == 0 {
		return 0, bad("an empty stream")
	}
	at := 0
	ctrl, src := int(src[0]&31), src[1:]
	for {
		if ctrl < 32 {
			n := ctrl + 1
			if n > len(dst)-at || n > len(src) {
				return 0, bad("literals beyond the stream")
			}
			copy(dst[at:at+n], src)
			at, src = at+n, src[n:]
		} else {
			n, offset := ctrl>>5-1, ctrl&31<<8
			if n == 6 {
				for {
					if len(src) == 0 {
						return 0, bad("a match is cut")
					}
					c := src[0]
					src = src[1:]
					n += int(c)
					if n > len(dst) {
						return 0, bad("a match beyond the stream")
					}
					if c != 255 {
						break
					}
				}
			}
			if len(src) == 0 {
				return 0, bad("a match is cut")
			}
			c := int(src[0])
			src = src[1:]
			n += 3
			back := offset + c + 1
			if c == 255 && offset == 31<<8 {
				if len(src) < 2 {
					return 0, bad("a match is cut")
				}
				back = int(src[0])<<8 + int(src[1]) + maxDistance + 1
				src = src[2:]
			}
			if back > at || n > len(dst)-at {
				return 0, bad("a match outside the stream")
			}
			from := at - back
			if back >= n {
				copy(dst[at:at+n], dst[from:])
				at += n
			} else {
				// The match overlaps its own output. Copying twice as much in each step needs few
				// steps.
				for end := at + n; at < end; {
					at += copy(dst[at:end], dst[from:at])
				}
			}
		}
		if len(src) == 0 {
			return at, nil
		}
		ctrl, src = int(src[0]), src[1:]
	}
}

// unshuffleBits undoes bitshuffle of a whole block. Like c-blosc, it does not shuffle a block if
// the number of elements is not a multiple of eight. planes is a buffer of the size of src, which
// is needed for elements of more than one byte.
func unshuffleBits(dst, src, planes []byte, size int) {
	n := len(src) / size
	if n%8 != 0 || n == 0 {
		copy(dst, src)
		return
	}
	to := dst
	if size > 1 {
		to = planes
	}
	for b := range size {
		bitPlane(to[b*n:][:n], src[b*n:][:n])
	}
	if size > 1 {
		elements.Unshuffle(dst[:n*size], planes[:n*size], size)
	}
	copy(dst[n*size:], src[n*size:])
}

// bitPlane computes the bytes of one plane from its eight rows of bits.
func bitPlane(plane, rows []byte) {
	elements.Unshuffle(plane, rows, 8)
	for ; len(plane) >= 8; plane = plane[8:] {
		binary.LittleEndian.PutUint64(plane, transposeBits(binary.LittleEndian.Uint64(plane)))
	}
}

// transposeBits returns the transpose of a matrix of 8×8 bits.
func transposeBits(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}
