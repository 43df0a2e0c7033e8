package zarr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pierrec/lz4/v4"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/zarr/internal/blosc"
	"github.com/goatnote-inc/robocache/internal/inflate"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/internal/unzstd"
	"github.com/goatnote-inc/robocache/video/jpegxl"
)

// Codecs lists the supported codecs.
var Codecs = []string{
	"blosc (blosclz, lz4, lz4hc, zlib, zstd; byte and bit shuffle)",
	"zstd",
	"gzip",
	"zlib",
	"lz4",
	"crc32c",
	"crc32",
	"adler32",
	"shuffle",
	"bytes",
	"transpose",
	"delta",
	"bitround",
	"fixedscaleoffset",
	"sharding_indexed",
	"vlen-utf8",
	"json2",
	"imagecodecs_jpegxl",
}

// codecStep undoes one codec. size is the expected size of the result, or -1 if the metadata does
// not determine it.
type codecStep struct {
	name string
	size int64
	undo func(src []byte, size int64) ([]byte, error)
}

// pipeline undoes the codecs of a chunk. steps are in the order of encoding. texts is set if the
// chunk contains texts of variable length.
type pipeline struct {
	steps      []codecStep
	texts      func(b []byte, n int) ([]string, error)
	elements   int  // number of elements in a chunk
	ownsMemory bool // a decoded chunk shares no memory with its packed bytes
}

// maxPacked returns the maximum size of a chunk in its file.
func (p *pipeline) maxPacked(raw int64) int64 {
	if p.texts != nil {
		return maxChunk
	}
	return raw + raw/2 + 64<<10
}

// small is the chunk size up to which any compression ratio is accepted. Larger chunks must not
// exceed maxRatio times their packed size.
const (
	small    = 64 << 20
	maxRatio = 1000
)

// decode returns the decoded bytes of a chunk.
func (p *pipeline) decode(b []byte, raw int64) ([]byte, error) {
	if raw > small && raw/maxRatio > int64(len(b)) {
		return nil, robocache.ResourceLimit(
			"zarr chunk",
			nil,
			"%d bytes unpack to %d",
			len(b),
			raw,
		).
			Expected(fmt.Sprintf("at most %d times as many above %d", maxRatio, small), "").
			WithHint("if the chunk is not damaged, write the array again with smaller chunks")
	}
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := &p.steps[i]
		var err error
		if b, err = s.undo(b, s.size); err == nil && s.size >= 0 && int64(len(b)) != s.size {
			err = robocache.Malformed("zarr chunk", nil, "").
				Expected(fmt.Sprintf("%d bytes", s.size), fmt.Sprint(len(b)))
		}
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"codec": s.name})
		}
	}
	return b, nil
}

// pipelineBuilder collects steps in the order of encoding.
type pipelineBuilder struct {
	pipeline
	typ   npy.Type // element type before the next step
	shape []int    // shape of the chunk before the next step
	size  int64    // bytes of the chunk before the next step; -1 once compressed
}

func (b *pipelineBuilder) addStep(
	name string,
	after int64,
	undo func(src []byte, size int64) ([]byte, error),
) {
	b.steps = append(b.steps, codecStep{name: name, size: b.size, undo: undo})
	b.size = after
}

// buildPipeline reads a list of codecs for a chunk whose elements are stored as t.
func (a *Array) buildPipeline(chunk []int, t npy.Type, codecs []codec) (pipeline, error) {
	size, err := bytesOf(chunk, t.Size)
	if err != nil {
		return pipeline{}, err
	}
	b := &pipelineBuilder{typ: t, shape: chunk, size: size}
	b.elements = 1
	for _, c := range chunk {
		b.elements *= c
	}
	if a.Text {
		b.size = -1
	}
	packed := false // a codec has converted the array to bytes
	for _, n := range codecs {
		c, err := n.parameters()
		if err != nil {
			return pipeline{}, err
		}
		switch name := strings.TrimPrefix(n.name, "numcodecs."); {
		case name == "transpose" && a.Text:
			return pipeline{}, unsupported("texts in another order than C")
		case name == "transpose":
			order, ok := permutation(c["order"], len(chunk))
			if !ok || packed {
				return pipeline{}, bad("codec transpose: order %v", c["order"])
			}
			b.addTranspose(order)
		case name == "bytes" || textCodecs[name] != nil:
			if packed || a.Text != (name != "bytes") {
				return pipeline{}, bad(
					"codec %s for elements of kind %c, or behind another that makes bytes of them",
					name,
					a.Type.Kind,
				)
			}
			packed = true
			if b.texts = textCodecs[name]; c.text("endian") == "big" && t.Size > 1 {
				b.addSwap()
			}
		case name == "sharding_indexed":
			return pipeline{}, unsupported("sharding inside other codecs")
		default:
			if err := b.addCodec(name, c); err != nil {
				return pipeline{}, err
			}
		}
	}
	if !packed {
		return pipeline{}, bad("no codec makes bytes of the array")
	}
	return b.pipeline, nil
}

// permutation parses an order of dimensions. "F" is the reversed order.
func permutation(v any, n int) ([]int, bool) {
	if v == "F" {
		return elements.Reversed(n), true
	}
	items, ok := v.([]any)
	if !ok || len(items) != n {
		return nil, false
	}
	out := make([]int, n)
	seen := make([]bool, n)
	for i, item := range items {
		f, ok := item.(float64)
		if !ok || f < 0 || f >= float64(n) || f != math.Trunc(f) || seen[int(f)] {
			return nil, false
		}
		out[i] = int(f)
		seen[out[i]] = true
	}
	return out, true
}

func (b *pipelineBuilder) addTranspose(perm []int) {
	if slices.IsSorted(perm) {
		return
	}
	shape, size := slices.Clone(b.shape), b.typ.Size
	b.addStep(
		"transpose",
		b.size,
		func(src []byte, _ int64) ([]byte, error) {
			return elements.Transposed(src, shape, perm, size), nil
		},
	)
	next := make([]int, len(perm))
	for i, p := range perm {
		next[i] = shape[p]
	}
	b.shape = next
}

func (b *pipelineBuilder) addSwap() {
	if word := b.typ.Word(); word > 1 {
		b.addStep("bytes", b.size, func(src []byte, _ int64) ([]byte, error) {
			dst := make([]byte, len(src))
			elements.Swap(dst, src, word)
			return dst, nil
		})
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// unpackers has the functions that decompress, by codec.
var unpackers = map[string]func(src []byte, size int64) ([]byte, error){
	"blosc": unpackBlosc,
	"zstd":  unpackZstd,
	"gzip": func(src []byte, size int64) ([]byte, error) {
		return unpackDeflate(inflate.GzipMember, src, size)
	},
	"zlib": func(src []byte, size int64) ([]byte, error) {
		return unpackDeflate(inflate.ZlibStream, src, size)
	},
	"lz4": unpackLZ4,
}

// checksums has the checksum codecs. A checksum is before or after the data, as the parameter
// location says. usual is its default.
var checksums = map[string]struct {
	of    func([]byte) uint32
	usual string
}{
	"crc32c":  {func(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }, "end"},
	"crc32":   {crc32.ChecksumIEEE, "start"},
	"adler32": {adler32.Checksum, "start"},
}

// addCodec adds a codec by its name in numcodecs or in v3.
func (b *pipelineBuilder) addCodec(name string, c config) error {
	if undo, ok := unpackers[name]; ok {
		b.addStep(name, -1, undo)
		b.ownsMemory = true
		return nil
	}
	if sum, ok := checksums[name]; ok {
		front := sum.usual == "start" && c.text("location") != "end" ||
			c.text("location") == "start"
		b.addChecksum(name, sum.of, front)
		return nil
	}
	switch name {
	case "shuffle":
		size := c.int("elementsize", 4)
		if size < 1 || size > 1<<16 {
			return bad("shuffle: elementsize %d", size)
		}
		b.addStep(name, b.size, func(src []byte, _ int64) ([]byte, error) {
			dst := make([]byte, len(src))
			elements.Unshuffle(dst, src, size)
			return dst, nil
		})
	case "bitround":
		// rounding occurs only in the encoder, so nothing is undone
	case "imagecodecs_jpegxl":
		// a chunk is a stream with as many images as the chunk has, of the element type
		if b.typ.Kind != 'u' || b.typ.Size > 2 || b.size < 0 {
			return unsupported("codec %q for elements of %s", name, b.typ)
		}
		size := b.typ.Size
		b.addStep(name, -1, func(src []byte, room int64) ([]byte, error) {
			dst := make([]byte, room)
			return dst, jpegxl.Decode(context.Background(), dst, src, size)
		})
	case "delta":
		if err := b.addDelta(c); err != nil {
			return err
		}
	case "fixedscaleoffset":
		if err := b.addFixedScale(c); err != nil {
			return err
		}
	default:
		return robocache.Unsupported("zarr", nil, "codec %q", name).
			WithHint("Supported codecs: %s", strings.Join(Codecs, ", "))
	}
	return nil
}

// addChecksum verifies a checksum of four bytes and removes it.
func (b *pipelineBuilder) addChecksum(name string, of func([]byte) uint32, front bool) {
	after := int64(-1)
	if b.size >= 0 {
		after = b.size + 4
	}
	b.addStep(name, after, func(src []byte, _ int64) ([]byte, error) {
		if len(src) < 4 {
			return nil, malformed("no room for the checksum")
		}
		data, sum := src[:len(src)-4], src[len(src)-4:]
		if front {
			sum, data = src[:4], src[4:]
		}
		if want, got := le.Uint32(sum), of(data); want != got {
			return nil, robocache.Malformed("zarr chunk", nil, "checksum").
				Expected(fmt.Sprintf("%08x", want), fmt.Sprintf("%08x", got))
		}
		return data, nil
	})
}

func unpackBlosc(src []byte, size int64) ([]byte, error) {
	n, err := blosc.Size(src)
	if err == nil && size >= 0 && n != size {
		return nil, malformed("a blosc buffer of %d bytes, the chunk has %d", n, size)
	}
	if size < 0 {
		size = mostUnpacked(src)
	}
	return blosc.Decode(src, size)
}

func unpackZstd(src []byte, size int64) ([]byte, error) {
	if size >= 0 {
		dst := make([]byte, size)
		n, err := unzstd.Decode(dst, src, unzstd.Verify)
		return dst[:n], err
	}
	return growUntilFits(
		src,
		unzstd.ErrRoom,
		func(dst []byte) (int, error) { return unzstd.Decode(dst, src, unzstd.Verify) },
	)
}

func unpackDeflate(kind inflate.Kind, src []byte, size int64) ([]byte, error) {
	if size < 0 {
		return growUntilFits(src, inflate.ErrRoom, func(dst []byte) (int, error) {
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

// mostUnpacked returns the size limit for data whose size is not stored.
func mostUnpacked(src []byte) int64 { return min(max(small/4, maxRatio*int64(len(src))), maxChunk) }

// growUntilFits unpacks data whose size is not stored. It enlarges the buffer as long as unpack
// returns tooLittle.
func growUntilFits(
	src []byte,
	tooLittle error,
	unpack func(dst []byte) (int, error),
) ([]byte, error) {
	most := mostUnpacked(src)
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

// unpackLZ4 decompresses numcodecs' lz4: the size in four bytes, followed by a block.
func unpackLZ4(src []byte, size int64) ([]byte, error) {
	if len(src) < 4 {
		return nil, malformed("lz4: no size")
	}
	n := int64(le.Uint32(src))
	if size >= 0 && n != size || n > maxChunk || n > 255*int64(len(src)) {
		return nil, malformed("lz4: %d bytes declared for %d packed ones", n, len(src))
	}
	dst := make([]byte, n)
	if got, err := lz4.UncompressBlock(src[4:], dst); err != nil || int64(got) != n {
		return nil, robocache.Malformed("lz4", nil, "the block does not give %d bytes", n).
			WithCause(err)
	}
	return dst, nil
}

// typeOf parses the type of a filter, which is NumPy's string or a name of v3.
func typeOf(c config, name string, or npy.Type) (npy.Type, error) {
	s := c.text(name)
	if s == "" {
		return or, nil
	}
	if t, ok := typesV3[s]; ok && t.Kind != 'O' {
		return t, nil
	}
	return npy.ParseType(s)
}

// addNumberFilter adds a filter that stores numbers of type t as another type, as. undo converts
// the stored numbers to type t. Both are little-endian.
func (b *pipelineBuilder) addNumberFilter(
	name string,
	c config,
	reads func(t, as robocache.DType) bool,
	undo func(dst, src []byte, t, as npy.Type),
) error {
	t, err := typeOf(c, "dtype", b.typ)
	if err != nil {
		return err
	}
	as, err := typeOf(c, "astype", t)
	if err != nil {
		return err
	}
	if as.DType() == robocache.InvalidDType || !reads(t.DType(), as.DType()) ||
		t.Size != b.typ.Size {
		return unsupported("codec %s of %s kept as %s", name, t, as)
	}
	after := b.size / int64(t.Size) * int64(as.Size)
	b.addStep(name, after, func(src []byte, size int64) ([]byte, error) {
		if int64(len(src)) != after {
			return nil, malformed("%s: %d bytes, not %d", name, len(src), after)
		}
		if as.Big {
			src = slices.Clone(src)
			elements.Swap(src, src, as.Size)
		}
		dst := make([]byte, size)
		undo(dst, src, t, as)
		if t.Big {
			elements.Swap(dst, dst, t.Size)
		}
		return dst, nil
	})
	b.typ = as
	return nil
}

func (b *pipelineBuilder) addDelta(c config) error {
	reads := func(t, as robocache.DType) bool {
		return t != robocache.InvalidDType && t != robocache.Bool && t != robocache.Float16 &&
			as != robocache.Float16 &&
			(t.Float() || !as.Float())
	}
	return b.addNumberFilter("delta", c, reads, func(dst, src []byte, t, as npy.Type) {
		switch t.DType() {
		case robocache.Float32:
			var v float32
			for i, x := range robocache.Float64s(nil, as.DType(), src) {
				v += float32(x)
				putFloat(dst[4*i:4*i+4], float64(v))
			}
		case robocache.Float64:
			var v float64
			for i, x := range robocache.Float64s(nil, as.DType(), src) {
				v += x
				putFloat(dst[8*i:8*i+8], v)
			}
		default:
			var v int64
			var w [8]byte
			// sums of unsigned steps wrap around correctly
			for i, x := range robocache.Int64s(nil, as.DType(), src) {
				v += x
				le.PutUint64(w[:], uint64(v))
				copy(dst[i*t.Size:(i+1)*t.Size], w[:])
			}
		}
	})
}

func (b *pipelineBuilder) addFixedScale(c config) error {
	scale, ok1 := c["scale"].(float64)
	offset, ok2 := c["offset"].(float64)
	reads := func(t, _ robocache.DType) bool {
		return ok1 && ok2 && scale != 0 && (t == robocache.Float32 || t == robocache.Float64)
	}
	return b.addNumberFilter("fixedscaleoffset", c, reads, func(dst, src []byte, t, as npy.Type) {
		for i, x := range robocache.Float64s(nil, as.DType(), src) {
			v := x/scale + offset
			if as.DType() == robocache.Float32 {
				// NumPy computes in the stored type if that is a float
				v = float64(float32(x)/float32(scale) + float32(offset))
			}
			putFloat(dst[i*t.Size:(i+1)*t.Size], v)
		}
	})
}

// textCodecs has the codecs that convert texts to bytes. The functions decode the n texts of a
// chunk.
var textCodecs = map[string]func(b []byte, n int) ([]string, error){
	"vlen-utf8": vlenTexts,
	"json2":     jsonTexts,
}

// vlenTexts decodes a count, and for each text its length and bytes.
func vlenTexts(b []byte, n int) ([]string, error) {
	number := func() (uint64, error) {
		if len(b) < 4 {
			return 0, bad("vlen-utf8: the texts are cut")
		}
		v := le.Uint32(b)
		b = b[4:]
		return uint64(v), nil
	}
	if count, err := number(); err != nil {
		return nil, err
	} else if count != uint64(n) || n > len(b)/4 {
		return nil, bad("vlen-utf8: %d texts in %d bytes, the chunk has %d", count, len(b), n)
	}
	out := make([]string, n)
	for i := range out {
		l, err := number()
		if err != nil {
			return nil, err
		}
		if l > uint64(len(b)) {
			return nil, bad("vlen-utf8: text %d is cut", i)
		}
		if out[i] = string(b[:l]); !utf8.ValidString(out[i]) {
			return nil, bad("vlen-utf8: text %d is not UTF-8", i)
		}
		b = b[l:]
	}
	return out, nil
}

// jsonTexts decodes numcodecs' json2: one list with the elements, the type and the shape. Elements
// that are not texts are returned as JSON.
func jsonTexts(b []byte, n int) ([]string, error) {
	var list []json.RawMessage
	err := jsonmeta.Unmarshal("zarr", b, &list)
	if err := robocache.At(err, robocache.Where{"codec": "json2"}); err != nil {
		return nil, err
	}
	if len(list) != n+2 {
		return nil, bad("json2: %d elements, the chunk has %d", len(list)-2, n)
	}
	out := make([]string, n)
	for i := range out {
		if json.Unmarshal(list[i], &out[i]) != nil {
			out[i] = string(list[i])
		}
	}
	return out, nil
}
