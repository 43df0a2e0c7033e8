package zarr

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

const (
	maxChunk = 256 << 20 // decoded bytes
	maxDims  = 32
)

func malformed(format string, args ...any) error {
	return robocache.Malformed("zarr", nil, format, args...)
}

// bad returns an error for malformed data.
func bad(format string, args ...any) error { return malformed(format, args...) }

func unsupported(format string, args ...any) error {
	return robocache.Unsupported("zarr", nil, format, args...)
}

// Array is one array of a store.
type Array struct {
	Path      string
	Type      npy.Type // Big is false: results are little-endian
	Text      bool     // elements are texts of variable length
	Shape     []int
	Attrs     map[string]any
	chunks    []int // shape of the unit of decoding; for a sharded array, an inner chunk
	grid      []int // number of chunks in each dimension
	fill      []byte
	blankText string // fill value of a text
	pipe      pipeline
	shard     *shard
	key       func(index []int) string
	err       error // reason why the array cannot be read
	id        int32
	rowBytes  int // bytes of a row
}

// metadata is the content of .zarray, or of the zarr.json of an array.
type metadata struct {
	Format int             `json:"zarr_format"`
	Shape  []int           `json:"shape"`
	Fill   json.RawMessage `json:"fill_value"`
	// Fields of v2.
	Chunks     []int           `json:"chunks"`
	DType      json.RawMessage `json:"dtype"`
	Compressor *codec          `json:"compressor"`
	Order      string          `json:"order"`
	Filters    []codec         `json:"filters"`
	Separator  string          `json:"dimension_separator"`
	// Fields of v3.
	Node     string         `json:"node_type"`
	DataType codec          `json:"data_type"`
	Grid     codec          `json:"chunk_grid"`
	Keys     codec          `json:"chunk_key_encoding"`
	Codecs   []codec        `json:"codecs"`
	Attrs    map[string]any `json:"attributes"`
	Storage  []any          `json:"storage_transformers"`
}

// codec is a name with parameters. In v2 it is {"id", …}, in v3 {"name", "configuration"} or only
// the name.
type codec struct {
	name string
	raw  json.RawMessage
}

func (c *codec) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.name)
	}
	var v struct {
		ID     any             `json:"id"`
		Name   string          `json:"name"`
		Config json.RawMessage `json:"configuration"`
	}
	err := jsonmeta.Unmarshal("zarr", b, &v)
	if e, ok := err.(*robocache.Error); ok {
		// The pointer is relative to this part, not to the file.
		delete(e.Where, "pointer")
		e.Msg = "a codec, chunk grid or data type cannot be read"
	}
	if c.name, c.raw = v.Name, v.Config; v.ID != nil {
		c.name, _ = v.ID.(string)
		c.raw = b
	}
	return err
}

// decodeParameters decodes the parameters into v.
func (c *codec) decodeParameters(v any) error {
	if len(c.raw) > 0 {
		err := jsonmeta.Unmarshal("zarr", c.raw, v)
		if err := robocache.At(err, robocache.Where{"codec": c.name}); err != nil {
			return err
		}
	}
	return nil
}

func (c *codec) parameters() (out config, err error) {
	if err := c.decodeParameters(&out); err != nil {
		return out, err
	}
	return out, nil
}

// config contains the parameters of a codec.
type config map[string]any

func (c config) int(name string, or int) int {
	if f, ok := c[name].(float64); ok && f == float64(int(f)) {
		return int(f)
	}
	return or
}

func (c config) text(name string) string {
	s, _ := c[name].(string)
	return s
}

// parseArray parses the metadata of an array.
func parseArray(name string, b []byte, v3 bool) (*Array, error) {
	var m metadata
	if err := jsonmeta.Unmarshal("zarr", b, &m); err != nil {
		return nil, err
	}
	a := &Array{Path: name, Shape: m.Shape}
	chunks, codecs, prefix, sep := m.Chunks, m.Codecs, "", m.Separator
	var stored npy.Type // element type in the stored chunks
	if v3 {
		if m.Format != 3 || m.Node != "array" {
			return nil, bad("a zarr.json of format %d and node type %q", m.Format, m.Node)
		}
		if len(m.Storage) > 0 {
			return nil, unsupported("storage transformers")
		}
		a.Attrs = m.Attrs
		var err error
		if stored, err = typeV3(m.DataType); err != nil {
			return nil, err
		}
		if m.Grid.name != "regular" {
			return nil, unsupported("chunk grid %q", m.Grid.name)
		}
		var grid struct {
			Shape []int `json:"chunk_shape"`
		}
		if err := m.Grid.decodeParameters(&grid); err != nil {
			return nil, err
		}
		keys, err := m.Keys.parameters()
		if err != nil {
			return nil, err
		}
		chunks, sep = grid.Shape, keys.text("separator")
		switch m.Keys.name {
		case "default":
			prefix, sep = "c", cmp.Or(sep, "/")
		case "v2":
		default:
			return nil, unsupported("chunk key encoding %q", m.Keys.name)
		}
	} else {
		if m.Format != 2 {
			return nil, bad("zarr_format %d in a .zarray", m.Format)
		}
		var dtype string
		if json.Unmarshal(m.DType, &dtype) != nil {
			return nil, unsupported("a structured dtype")
		}
		var err error
		if stored, err = npy.ParseType(dtype); err != nil {
			return nil, err
		}
	}
	a.Type, a.Text = stored, stored.Kind == 'O'
	a.Type.Big = false
	if err := a.setShape(chunks); err != nil {
		return nil, err
	}
	if err := a.setFill(m.Fill); err != nil {
		return nil, err
	}
	if err := a.setKeys(prefix, cmp.Or(sep, ".")); err != nil {
		return nil, err
	}
	if !v3 && m.Order != "C" && m.Order != "F" {
		return nil, bad("order %q", m.Order)
	}
	a.err = func() error {
		if !v3 {
			chain, err := m.codecsOfV2(a.Text, stored.Big)
			if err != nil {
				return err
			}
			codecs = chain
		}
		return a.setCodecs(codecs, stored)
	}()
	return a, nil
}

// codecsOfV2 converts the order, filters and compressor of v2 to codecs of v3.
func (m *metadata) codecsOfV2(text, big bool) (out []codec, err error) {
	if m.Order == "F" && len(m.Chunks) > 1 {
		out = append(out, codec{"transpose", json.RawMessage(`{"order": "F"}`)})
	}
	switch {
	case text && (len(m.Filters) != 1 || textCodecs[m.Filters[0].name] == nil):
		ids := make([]string, len(m.Filters))
		for i, f := range m.Filters {
			ids[i] = f.name
		}
		return out, unsupported("an array of Python objects (dtype object, codecs %q)", ids)
	case big:
		out = append(out, codec{"bytes", json.RawMessage(`{"endian": "big"}`)})
	case !text:
		out = append(out, codec{name: "bytes"})
	}
	if out = append(out, m.Filters...); m.Compressor != nil {
		out = append(out, *m.Compressor)
	}
	return out, nil
}

var typesV3 = map[string]npy.Type{
	"bool": {
		Kind: 'b',
		Size: 1,
	},
	"int8":  {Kind: 'i', Size: 1},
	"int16": {Kind: 'i', Size: 2},
	"int32": {Kind: 'i', Size: 4},
	"int64": {Kind: 'i', Size: 8},
	"uint8": {
		Kind: 'u',
		Size: 1,
	},
	"uint16": {Kind: 'u', Size: 2},
	"uint32": {Kind: 'u', Size: 4},
	"uint64": {Kind: 'u', Size: 8},
	"float16": {
		Kind: 'f',
		Size: 2,
	},
	"float32": {Kind: 'f', Size: 4},
	"float64": {Kind: 'f', Size: 8},
	"string":  {Kind: 'O', Size: 8},
}

// setKeys sets the function that names chunks. prefix precedes the chunk numbers.
func (a *Array) setKeys(prefix, sep string) error {
	if sep != "." && sep != "/" {
		return bad("separator %q", sep)
	}
	a.key = func(index []int) string {
		key := joinIndex(index, sep)
		switch {
		case len(index) == 0:
			key = cmp.Or(prefix, "0")
		case prefix != "":
			key = prefix + sep + key
		}
		return path.Join(a.Path, key)
	}
	return nil
}

func typeV3(n codec) (npy.Type, error) {
	if t, ok := typesV3[n.name]; ok {
		return t, nil
	}
	parameters, err := n.parameters()
	if err != nil {
		return npy.Type{}, err
	}
	size := parameters.int("length_bytes", -1)
	switch {
	case n.name == "fixed_length_utf32" && size >= 0 && size%4 == 0 && size <= 1<<24:
		return npy.Type{Kind: 'U', Size: size}, nil
	case n.name == "null_terminated_bytes" && size >= 0 && size <= 1<<24:
		return npy.Type{Kind: 'S', Size: size}, nil
	}
	return npy.Type{}, unsupported("data type %q", n.name)
}

// setShape checks shape and chunks, and computes the sizes.
func (a *Array) setShape(chunks []int) error {
	if len(chunks) != len(a.Shape) || len(chunks) > maxDims {
		return bad("chunks %v for shape %v", chunks, a.Shape)
	}
	for i, c := range chunks {
		if c <= 0 || a.Shape[i] < 0 || a.Shape[i] > 1<<48 || c > 1<<48 {
			return bad("chunks %v for shape %v", chunks, a.Shape)
		}
	}
	a.setChunks(chunks)
	if a.rowBytes = a.Type.Size; len(a.Shape) > 0 {
		for _, d := range a.Shape[1:] {
			if d > 0 && a.rowBytes > (1<<40)/d {
				return bad("rows of shape %v are too large", a.Shape[1:])
			}
			a.rowBytes *= d
		}
	}
	if _, err := bytesOf(chunks, max(a.Type.Size, 1)); err != nil {
		return err
	}
	return nil
}

func (a *Array) setChunks(chunks []int) {
	a.chunks, a.grid = chunks, make([]int, len(chunks))
	for i, c := range chunks {
		a.grid[i] = (a.Shape[i] + c - 1) / c
	}
}

// bytesOf returns the size of a chunk, or an error if it exceeds the limit.
func bytesOf(chunk []int, size int) (int64, error) {
	n := int64(size)
	for _, c := range chunk {
		if n > maxChunk/int64(max(c, 1)) {
			return 0, robocache.ResourceLimit("zarr", nil, "").
				Expected(
					fmt.Sprintf("chunks of at most %d bytes", maxChunk),
					fmt.Sprintf("%v elements of %d bytes", chunk, size),
				)
		}
		n *= int64(c)
	}
	return n, nil
}

func joinIndex(index []int, sep string) string {
	parts := make([]string, len(index))
	for i, v := range index {
		parts[i] = strconv.Itoa(v)
	}
	return strings.Join(parts, sep)
}

// isContiguous reports whether a chunk contains whole rows in the layout of the result.
func (a *Array) isContiguous() bool {
	return len(a.Shape) > 0 && slices.Equal(a.chunks[1:], a.Shape[1:])
}

// setFill parses the fill value into one little-endian element. nil means zeros.
func (a *Array) setFill(raw json.RawMessage) error {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if len(raw) > 0 {
		if err := d.Decode(&v); err != nil {
			return bad("fill_value: %v", err)
		}
	}
	if v == nil {
		return nil
	}
	if a.Text {
		a.blankText, _ = v.(string) // 0 means an empty text, because it is the only zero of objects
		return nil
	}
	e := make([]byte, a.Type.Size)
	text, _ := v.(string)
	n, number := v.(json.Number)
	ok := true
	switch a.Type.Kind {
	case 'b':
		b, is := v.(bool)
		if ok = is || number; b || number && n != "0" {
			e[0] = 1
		}
	case 'i', 'u':
		var bits uint64
		bits, ok = integerFill(n.String(), a.Type.Size, a.Type.Kind == 'i')
		copy(e, le.AppendUint64(nil, bits))
	case 'f':
		// v3 stores the bits in hexadecimal
		if s, is := strings.CutPrefix(text, "0x"); is && len(s) <= 16 {
			b, err := hex.DecodeString(s)
			if ok = err == nil && len(b) == len(e); ok {
				slices.Reverse(b)
				copy(e, b)
			}
			break
		}
		f, err := strconv.ParseFloat(n.String(), 64)
		switch text {
		case "NaN":
			f, err = math.NaN(), nil
		case "Infinity":
			f, err = math.Inf(1), nil
		case "-Infinity":
			f, err = math.Inf(-1), nil
		}
		ok = err == nil || math.IsInf(f, 0)
		putFloat(e, f)
	case 'S':
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			copy(e, b)
		}
	case 'U':
		i := 0
		for _, r := range text {
			if i+4 > len(e) {
				break
			}
			le.PutUint32(e[i:], uint32(r))
			i += 4
		}
	}
	if !ok {
		return bad("fill_value %.100s for %s", string(raw), a.Type)
	}
	if slices.Max(append(e, 0)) > 0 {
		a.fill = e
	}
	return nil
}

// putFloat writes a number as a little-endian element with the size of dst.
func putFloat(dst []byte, f float64) {
	switch len(dst) {
	case 8:
		le.PutUint64(dst, math.Float64bits(f))
	case 4:
		le.PutUint32(dst, math.Float32bits(float32(f)))
	case 2:
		le.PutUint16(dst, robocache.HalfOf(f))
	}
}

// integerFill parses an integer that fits into size bytes. 0.0 is accepted too, because some
// writers use it for integers.
func integerFill(s string, size int, signed bool) (uint64, bool) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return uint64(i), fitsInteger(i, size, signed)
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil && !signed && size == 8 {
		return u, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return uint64(int64(f)), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 &&
		fitsInteger(int64(f), size, signed)
}

func fitsInteger(i int64, size int, signed bool) bool {
	bits := uint(8 * size)
	if signed {
		return bits == 64 || i >= -1<<(bits-1) && i < 1<<(bits-1)
	}
	return i >= 0 && (bits >= 63 || i < 1<<bits)
}
