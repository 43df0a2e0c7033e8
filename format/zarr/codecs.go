package zarr

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/zarr/internal/blosc"
	"github.com/goatnote-inc/robocache/internal/inflate"
	"github.com/goatnote-inc/robocache/internal/unzstd"
	"github.com/goatnote-inc/robocache/video/jpegxl"
)

// Codecs names what is read.
var Codecs = []string{"blosc (blosclz, lz4, lz4hc, zlib, zstd; byte and bit shuffle)", "zstd", "gzip", "zlib", "lz4", "crc32c", "crc32", "adler32", "shuffle", "bytes", "transpose", "delta", "bitround", "fixedscaleoffset",
	"sharding_indexed", "vlen-utf8", "json2", "imagecodecs_jpegxl"}

// step undoes one codec. size is what it must give, -1 where the metadata does not say.
type step struct {
	name string
	size int64
	undo func(src []byte, size int64) ([]byte, error)
}

// pipeline undoes a chunk's codecs, in the order that they were applied. texts is set where its last result are texts of varying length.
type pipeline struct {
	steps []step
	texts func(b []byte, n int) ([]string, error)
	n     int // elements of a chunk
}

// maxPacked is the most bytes that a chunk may take in its file.
func (p *pipeline) maxPacked(raw int64) int64 {
	if p.texts != nil {
		return maxChunk
	}
	return raw + raw/2 + 64<<10
}

// small is the size up to which a chunk may be as empty as it likes; beyond, it must not be more than maxRatio times what is packed.
const (
	small    = 64 << 20
	maxRatio = 1000
)

// decode gives a chunk's bytes.
func (p *pipeline) decode(b []byte, raw int64) ([]byte, error) {
	if raw > small && raw/maxRatio > int64(len(b)) {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zarr chunk", Msg: fmt.Sprintf("%d bytes unpack to %d", len(b), raw), Want: fmt.Sprintf("at most %d times as many above %d", maxRatio, small), Hint: "where the chunk is not damaged, write the array anew with smaller chunks"}
	}
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := &p.steps[i]
		var err error
		if b, err = s.undo(b, s.size); err != nil {
			return nil, robocache.At(err, robocache.Where{"codec": s.name})
		}
		if s.size >= 0 && int64(len(b)) != s.size {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zarr chunk", Where: robocache.Where{"codec": s.name}, Want: fmt.Sprintf("%d bytes", s.size), Got: fmt.Sprint(len(b))}
		}
	}
	return b, nil
}

// builder collects steps in the order of encoding.
type builder struct {
	pipeline
	typ    npy.Type // of the elements as they are at this point
	shape  []int    // of the chunk at this point
	size   int64    // of its bytes at this point, -1 once packed
	packed bool     // behind the codec that makes bytes of the array
}

func (b *builder) add(name string, after int64, undo func(src []byte, size int64) ([]byte, error)) {
	b.steps = append(b.steps, step{name: name, size: b.size, undo: undo})
	b.size = after
}

func newBuilder(a *Array, chunk []int, t npy.Type) (*builder, error) {
	b := &builder{typ: t, shape: chunk}
	var err error
	b.size, err = bytesOf(chunk, t.Size)
	b.n = 1
	for _, c := range chunk {
		b.n *= c
	}
	if a.Text {
		b.size = -1
	}
	return b, err
}

// pipelineV2 reads compressor, filters, order and byte order of v2 metadata.
func pipelineV2(a *Array, t npy.Type, m metaV2) (pipeline, error) {
	b, err := newBuilder(a, m.Chunks, t)
	if err != nil {
		return pipeline{}, err
	}
	if m.Order == "F" && len(m.Chunks) > 1 {
		if a.Text {
			return pipeline{}, unsupported("texts in order F")
		}
		perm := make([]int, len(m.Chunks))
		for i := range perm {
			perm[i] = len(perm) - 1 - i
		}
		b.transpose(perm)
	}
	if t.Big {
		b.swap()
	}
	for i, f := range m.Filters {
		if a.Text {
			if i > 0 || b.objects(f.ID) != nil {
				return pipeline{}, unsupported("an array of Python objects (dtype object, codec %q)", f.ID)
			}
			continue
		}
		if err := b.codec(f.ID, f.config); err != nil {
			return pipeline{}, err
		}
	}
	if a.Text && b.texts == nil {
		return pipeline{}, unsupported("an array of Python objects (dtype object) without a codec")
	}
	if m.Compressor != nil {
		if err := b.codec(m.Compressor.ID, m.Compressor.config); err != nil {
			return pipeline{}, err
		}
	}
	return b.pipeline, nil
}

// chainV3 reads a chain of v3 codecs for a chunk.
func (a *Array) chainV3(chunk []int, codecs []named) (pipeline, error) {
	b, err := newBuilder(a, chunk, a.Type)
	if err != nil {
		return pipeline{}, err
	}
	for _, n := range codecs {
		c, err := n.config()
		if err != nil {
			return pipeline{}, malformed("codec %s: %v", n.Name, err)
		}
		name := strings.TrimPrefix(n.Name, "numcodecs.")
		switch {
		case name == "transpose":
			order, ok := permutation(c["order"], len(chunk))
			if !ok || b.packed || a.Text {
				return pipeline{}, malformed("codec transpose: order %v", c["order"])
			}
			b.transpose(order)
		case name == "bytes" || name == "vlen-utf8":
			if b.packed {
				return pipeline{}, malformed("two codecs make bytes of the array")
			}
			b.packed = true
			if a.Text != (name != "bytes") {
				return pipeline{}, malformed("codec %s for elements of kind %c", name, a.Type.Kind)
			}
			if a.Text {
				b.texts = vlenTexts
			} else if c.text("endian") == "big" && a.Type.Size > 1 {
				b.swap()
			}
		case name == "sharding_indexed":
			return pipeline{}, unsupported("sharding inside other codecs")
		default:
			if err := b.codec(name, c); err != nil {
				return pipeline{}, err
			}
		}
	}
	if !b.packed {
		return pipeline{}, malformed("no codec makes bytes of the array")
	}
	return b.pipeline, nil
}

func permutation(v any, n int) ([]int, bool) {
	items, ok := v.([]any)
	if !ok || len(items) != n {
		return nil, false
	}
	out := make([]int, n)
	seen := make([]bool, n)
	for i, item := range items {
		f, ok := item.(float64)
		if !ok || f < 0 || f >= float64(n) || seen[int(f)] || f != math.Trunc(f) {
			return nil, false
		}
		out[i] = int(f)
		seen[out[i]] = true
	}
	return out, true
}

func (b *builder) transpose(perm []int) {
	if slices.IsSorted(perm) {
		return
	}
	shape, size := slices.Clone(b.shape), b.typ.Size
	b.add("transpose", b.size, func(src []byte, _ int64) ([]byte, error) { return untranspose(src, shape, perm, size), nil })
	next := make([]int, len(perm))
	for i, p := range perm {
		next[i] = shape[p]
	}
	b.shape = next
}

// untranspose gives C order of an array of shape whose dimension i lies in src at the place of perm's inverse.
func untranspose(src []byte, shape, perm []int, size int) []byte {
	n := len(shape)
	stride := make([]int, n) // in src, of each dimension of shape
	step := size
	for i := n - 1; i >= 0; i-- {
		stride[perm[i]] = step
		step *= shape[perm[i]]
	}
	return npy.Reorder(src, shape, stride, size)
}

func (b *builder) swap() {
	word := b.typ.Size
	if b.typ.Kind == 'U' {
		word = 4
	}
	if b.typ.Kind == 'S' || word <= 1 {
		return
	}
	b.add("bytes", b.size, func(src []byte, _ int64) ([]byte, error) {
		dst := make([]byte, len(src))
		npy.Swap(dst, src, word)
		return dst, nil
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// codec adds a codec by its name in numcodecs or in v3.
func (b *builder) codec(name string, c config) error {
	switch name {
	case "blosc":
		b.add(name, -1, func(src []byte, size int64) ([]byte, error) {
			limit := most(src)
			if size >= 0 {
				limit = size
			}
			n, err := blosc.Size(src)
			if err == nil && size >= 0 && n != size {
				return nil, malformed("a blosc buffer of %d bytes, the chunk has %d", n, size)
			}
			return blosc.Decode(src, limit)
		})
	case "zstd":
		b.add(name, -1, unpackZstd)
	case "gzip":
		b.add(name, -1, func(src []byte, size int64) ([]byte, error) { return uninflate(inflate.GzipMember, src, size) })
	case "zlib":
		b.add(name, -1, func(src []byte, size int64) ([]byte, error) { return uninflate(inflate.ZlibStream, src, size) })
	case "lz4":
		b.add(name, -1, unlz4)
	case "crc32c":
		b.sum(name, func(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }, c.text("location") == "start")
	case "crc32":
		b.sum(name, crc32.ChecksumIEEE, c.text("location") != "end")
	case "adler32":
		b.sum(name, adler32.Checksum, c.text("location") != "end")
	case "shuffle":
		size := c.int("elementsize", 4)
		if size < 1 || size > 1<<16 {
			return malformed("shuffle: elementsize %d", size)
		}
		b.add(name, b.size, func(src []byte, _ int64) ([]byte, error) {
			dst := make([]byte, len(src))
			blosc.Unshuffle(dst, src, size)
			return dst, nil
		})
	case "bitround":
		// It rounds when it encodes; nothing is to be undone.
	case "imagecodecs_jpegxl":
		return b.images(name)
	case "delta":
		return b.delta(c)
	case "fixedscaleoffset":
		return b.fixedScale(c)
	default:
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr", Msg: fmt.Sprintf("codec %q", name), Hint: "read are: " + strings.Join(Codecs, ", ")}
	}
	return nil
}

// images adds JPEG XL: a chunk is a stream of as many images as the chunk has, of its own type.
func (b *builder) images(name string) error {
	if b.typ.Kind != 'u' || b.typ.Size > 2 || b.size < 0 {
		return unsupported("codec %q for elements of %s", name, b.typ)
	}
	size := b.typ.Size
	b.add(name, -1, func(src []byte, room int64) ([]byte, error) {
		dst := make([]byte, room)
		return dst, jpegxl.Decode(context.Background(), dst, src, size)
	})
	return nil
}

// sum checks four bytes of a checksum, and takes them off.
func (b *builder) sum(name string, of func([]byte) uint32, front bool) {
	after := int64(-1)
	if b.size >= 0 {
		after = b.size + 4
	}
	b.add(name, after, func(src []byte, _ int64) ([]byte, error) {
		if len(src) < 4 {
			return nil, malformed("no room for the checksum")
		}
		data, sum := src[:len(src)-4], src[len(src)-4:]
		if front {
			sum, data = src[:4], src[4:]
		}
		if want, got := binary.LittleEndian.Uint32(sum), of(data); want != got {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zarr chunk", Msg: "checksum", Want: fmt.Sprintf("%08x", want), Got: fmt.Sprintf("%08x", got)}
		}
		return data, nil
	})
}

func unpackZstd(src []byte, size int64) ([]byte, error) {
	if size >= 0 {
		dst := make([]byte, size)
		n, err := unzstd.Decode(dst, src, unzstd.Verify)
		return dst[:n], err
	}
	return grow(src, unzstd.ErrRoom, func(dst []byte) (int, error) { return unzstd.Decode(dst, src, unzstd.Verify) })
}

func uninflate(kind inflate.Kind, src []byte, size int64) ([]byte, error) {
	if size < 0 {
		return grow(src, inflate.ErrRoom, func(dst []byte) (int, error) {
			n, _, err := inflate.Some(kind, dst, src)
			return n, err
		})
	}
	dst := make([]byte, size)
	if kind == inflate.GzipMember {
		return dst, inflate.Gzip(dst, src)
	}
	return dst, inflate.Zlib(dst, src)
}

// most is the limit of what does not say its size.
func most(src []byte) int64 { return min(max(small/4, maxRatio*int64(len(src))), maxChunk) }

// grow unpacks what does not say its size, into more room as long as there is tooLittle.
func grow(src []byte, tooLittle error, unpack func(dst []byte) (int, error)) ([]byte, error) {
	most := most(src)
	for room := min(max(int64(len(src))*4, 4<<10), most); ; room = min(4*room, most) {
		dst := make([]byte, room)
		n, err := unpack(dst)
		if err == nil {
			return dst[:n], nil
		}
		if !errors.Is(err, tooLittle) || room >= most {
			return nil, err
		}
	}
}

// unlz4 undoes numcodecs' lz4: the size in four bytes, and a block.
func unlz4(src []byte, size int64) ([]byte, error) {
	if len(src) < 4 {
		return nil, malformed("lz4: no size")
	}
	n := int64(binary.LittleEndian.Uint32(src))
	if size >= 0 && n != size || n > maxChunk || n > 255*int64(len(src)) {
		return nil, malformed("lz4: %d bytes declared for %d packed ones", n, len(src))
	}
	dst := make([]byte, n)
	if got, err := lz4.UncompressBlock(src[4:], dst); err != nil || int64(got) != n {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "lz4", Msg: fmt.Sprintf("the block does not give %d bytes", n), Err: err}
	}
	return dst, nil
}
