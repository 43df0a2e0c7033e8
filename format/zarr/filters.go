package zarr

import (
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/elements"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// typeOf reads a filter's type: NumPy's string, or v3's name.
func typeOf(c config, name string, or npy.Type) npy.Type {
	s := c.text(name)
	if s == "" {
		return or
	}
	if t, ok := typesV3[s]; ok && t.Kind != 'O' {
		return t
	}
	return guard.Must(npy.ParseType(s))
}

// numbers adds a filter that keeps numbers of one type as another. undo gives those of the chunk's type t from those that are kept, which
// come little-endian of type as, and gives them so.
func (b *builder) numbers(name string, c config, reads func(t, as robocache.DType) bool, undo func(dst, src []byte, t, as npy.Type)) {
	t := typeOf(c, "dtype", b.typ)
	as := typeOf(c, "astype", t)
	if as.DType() == robocache.InvalidDType || !reads(t.DType(), as.DType()) || t.Size != b.typ.Size {
		guard.Fail(unsupported("codec %s of %s kept as %s", name, t, as))
	}
	after := b.size / int64(t.Size) * int64(as.Size)
	b.add(name, after, func(src []byte, size int64) ([]byte, error) {
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
}

func (b *builder) delta(c config) {
	reads := func(t, as robocache.DType) bool {
		return t != robocache.InvalidDType && t != robocache.Bool && t != robocache.Float16 && as != robocache.Float16 && (t.Float() || !as.Float())
	}
	b.numbers("delta", c, reads, func(dst, src []byte, t, as npy.Type) {
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
			for i, x := range robocache.Int64s(nil, as.DType(), src) { // sums of unsigned steps wrap alike
				v += x
				le.PutUint64(w[:], uint64(v))
				copy(dst[i*t.Size:(i+1)*t.Size], w[:])
			}
		}
	})
}

func (b *builder) fixedScale(c config) {
	scale, ok1 := c["scale"].(float64)
	offset, ok2 := c["offset"].(float64)
	reads := func(t, _ robocache.DType) bool {
		return ok1 && ok2 && scale != 0 && (t == robocache.Float32 || t == robocache.Float64)
	}
	b.numbers("fixedscaleoffset", c, reads, func(dst, src []byte, t, as npy.Type) {
		for i, x := range robocache.Float64s(nil, as.DType(), src) {
			v := x/scale + offset
			if as.DType() == robocache.Float32 {
				v = float64(float32(x)/float32(scale) + float32(offset)) // NumPy computes in the kept type where it is floating
			}
			putFloat(dst[i*t.Size:(i+1)*t.Size], v)
		}
	})
}

// textCodecs make bytes of texts: these read them again, n of a chunk.
var textCodecs = map[string]func(b []byte, n int) []string{"vlen-utf8": vlenTexts, "json2": jsonTexts}

// vlenTexts reads a count, and of each text its length and bytes.
func vlenTexts(b []byte, n int) []string {
	number := func() uint64 {
		if len(b) < 4 {
			bad("vlen-utf8: the texts are cut")
		}
		v := le.Uint32(b)
		b = b[4:]
		return uint64(v)
	}
	if count := number(); count != uint64(n) || n > len(b)/4 {
		bad("vlen-utf8: %d texts in %d bytes, the chunk has %d", count, len(b), n)
	}
	out := make([]string, n)
	for i := range out {
		l := number()
		if l > uint64(len(b)) {
			bad("vlen-utf8: text %d is cut", i)
		}
		if out[i] = string(b[:l]); !utf8.ValidString(out[i]) {
			bad("vlen-utf8: text %d is not UTF-8", i)
		}
		b = b[l:]
	}
	return out
}

// jsonTexts reads numcodecs' json2: the elements, the type and the shape in one list. Elements that are no texts are given as JSON.
func jsonTexts(b []byte, n int) []string {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		bad("json2: %v", err)
	}
	if len(list) != n+2 {
		bad("json2: %d elements, the chunk has %d", len(list)-2, n)
	}
	out := make([]string, n)
	for i := range out {
		if json.Unmarshal(list[i], &out[i]) != nil {
			out[i] = string(list[i])
		}
	}
	return out
}
