package zarr

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
)

// typeOf reads a filter's type: NumPy's string, or v3's name.
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

func (b *builder) delta(c config) error {
	t, err := typeOf(c, "dtype", b.typ)
	if err != nil {
		return err
	}
	as, err := typeOf(c, "astype", t)
	if err != nil {
		return err
	}
	dt, from := t.DType(), as.DType()
	if dt == robocache.InvalidDType || dt == robocache.Bool || dt == robocache.Float16 || from == robocache.InvalidDType || from == robocache.Float16 || t.Size != b.typ.Size {
		return unsupported("codec delta of %s kept as %s", t, as)
	}
	after := b.size / int64(t.Size) * int64(as.Size)
	b.add("delta", after, func(src []byte, size int64) ([]byte, error) {
		if int64(len(src)) != after {
			return nil, malformed("delta: %d bytes, not %d", len(src), after)
		}
		src = little(src, as)
		dst := make([]byte, size)
		switch {
		case dt == robocache.Float32:
			var v float32
			for i, x := range robocache.Float64s(nil, from, src) {
				v += float32(x)
				binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
			}
		case dt == robocache.Float64:
			var v float64
			for i, x := range robocache.Float64s(nil, from, src) {
				v += x
				binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(v))
			}
		default:
			a := npy.Array{Type: as, Data: src}
			a.Type.Big = false
			if a.Type.Kind == 'u' && a.Type.Size == 8 {
				a.Type.Kind = 'i' // the sums wrap alike, and steps down are beyond 2^63
			}
			steps, ok := a.Int64s()
			if !ok {
				return nil, unsupported("codec delta of %s kept as %s", t, as)
			}
			var v int64
			var w [8]byte
			for i, x := range steps {
				v += x
				binary.LittleEndian.PutUint64(w[:], uint64(v))
				copy(dst[i*t.Size:(i+1)*t.Size], w[:])
			}
		}
		if t.Big {
			npy.Swap(dst, dst, t.Size)
		}
		return dst, nil
	})
	b.typ = as
	return nil
}

// little gives the bytes of elements of a type in little-endian order.
func little(src []byte, t npy.Type) []byte {
	if !t.Big {
		return src
	}
	dst := make([]byte, len(src))
	npy.Swap(dst, src, t.Size)
	return dst
}

func (b *builder) fixedScale(c config) error {
	t, err := typeOf(c, "dtype", b.typ)
	if err != nil {
		return err
	}
	as, err := typeOf(c, "astype", t)
	if err != nil {
		return err
	}
	scale, ok1 := c["scale"].(float64)
	offset, ok2 := c["offset"].(float64)
	dt, from := t.DType(), as.DType()
	if !ok1 || !ok2 || scale == 0 || from == robocache.InvalidDType || dt != robocache.Float32 && dt != robocache.Float64 || t.Size != b.typ.Size {
		return unsupported("codec fixedscaleoffset of %s kept as %s", t, as)
	}
	after := b.size / int64(t.Size) * int64(as.Size)
	b.add("fixedscaleoffset", after, func(src []byte, size int64) ([]byte, error) {
		if int64(len(src)) != after {
			return nil, malformed("fixedscaleoffset: %d bytes, not %d", len(src), after)
		}
		dst := make([]byte, size)
		for i, x := range robocache.Float64s(nil, from, little(src, as)) {
			v := x/scale + offset
			if from == robocache.Float32 {
				v = float64(float32(x)/float32(scale) + float32(offset)) // NumPy computes in the kept type where it is floating
			}
			if dt == robocache.Float32 {
				binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(v)))
			} else {
				binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(v))
			}
		}
		if t.Big {
			npy.Swap(dst, dst, t.Size)
		}
		return dst, nil
	})
	b.typ = as
	return nil
}

// objects takes the codec that makes bytes of texts.
func (b *builder) objects(name string) error {
	switch name {
	case "vlen-utf8":
		b.texts = vlenTexts
	case "json2":
		b.texts = jsonTexts
	default:
		return unsupported("object codec %q", name)
	}
	return nil
}

// vlenTexts reads a count, and of each text its length and bytes.
func vlenTexts(b []byte, n int) ([]string, error) {
	le := binary.LittleEndian
	if len(b) < 4 {
		return nil, malformed("vlen-utf8: no count")
	}
	if count := le.Uint32(b); int64(count) != int64(n) {
		return nil, malformed("vlen-utf8: %d texts, the chunk has %d", count, n)
	}
	if n > len(b)/4 {
		return nil, malformed("vlen-utf8: %d texts in %d bytes", n, len(b))
	}
	out := make([]string, n)
	b = b[4:]
	for i := range out {
		if len(b) < 4 {
			return nil, malformed("vlen-utf8: text %d is cut", i)
		}
		l := le.Uint32(b)
		if b = b[4:]; uint64(l) > uint64(len(b)) {
			return nil, malformed("vlen-utf8: text %d is cut", i)
		}
		if out[i] = string(b[:l]); !utf8.ValidString(out[i]) {
			return nil, malformed("vlen-utf8: text %d is not UTF-8", i)
		}
		b = b[l:]
	}
	return out, nil
}

// jsonTexts reads numcodecs' json2: the elements, the type and the shape in one list. Elements that are no texts are given as JSON.
func jsonTexts(b []byte, n int) ([]string, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, malformed("json2: %v", err)
	}
	if len(list) != n+2 {
		return nil, malformed("json2: %d elements, the chunk has %d", len(list)-2, n)
	}
	out := make([]string, n)
	for i := range out {
		if json.Unmarshal(list[i], &out[i]) != nil {
			out[i] = string(list[i])
		}
	}
	return out, nil
}
