package zarr

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
)

const (
	maxChunk = 256 << 20 // decoded bytes
	maxDims  = 32
)

func malformed(format string, args ...any) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "zarr", Msg: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr", Msg: fmt.Sprintf(format, args...)}
}

// Array is one array of a store.
type Array struct {
	Path   string
	Type   npy.Type // Big is false: what is given is little-endian
	Text   bool     // elements are texts of varying length
	Shape  []int
	Attrs  map[string]any
	chunks []int // of what is decoded as a whole: of a sharded array its inner chunks
	grid   []int // number of chunks in each dimension
	fill   []byte
	blank  string // the fill value of a text
	pipe   pipeline
	shard  *shard
	key    func(index []int) string
	err    error // why it cannot be read
	id     int32
	row    int // bytes of a row
}

// metaV2 is .zarray.
type metaV2 struct {
	Format     int             `json:"zarr_format"`
	Shape      []int           `json:"shape"`
	Chunks     []int           `json:"chunks"`
	DType      json.RawMessage `json:"dtype"`
	Compressor *codecV2        `json:"compressor"`
	Fill       json.RawMessage `json:"fill_value"`
	Order      string          `json:"order"`
	Filters    []codecV2       `json:"filters"`
	Separator  string          `json:"dimension_separator"`
}

// codecV2 is a codec's configuration, with its name in "id".
type codecV2 struct {
	ID string
	config
}

func (c *codecV2) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &c.config); err != nil {
		return err
	}
	c.ID, _ = c.config["id"].(string)
	return nil
}

// config holds a codec's parameters.
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

// arrayV2 reads .zarray.
func arrayV2(name string, b []byte) (*Array, error) {
	var m metaV2
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zarr metadata", Err: err}
	}
	if m.Format != 2 {
		return nil, malformed("zarr_format %d in a .zarray", m.Format)
	}
	a := &Array{Path: name, Shape: m.Shape}
	var dtype string
	if err := json.Unmarshal(m.DType, &dtype); err != nil {
		return nil, unsupported("a structured dtype")
	}
	t, err := npy.ParseType(dtype)
	if err != nil {
		return nil, err
	}
	a.Type = t
	a.Type.Big = false
	a.Text = t.Kind == 'O'
	if err := a.layout(m.Chunks); err != nil {
		return nil, err
	}
	if err := a.setFill(m.Fill, false); err != nil {
		return nil, err
	}
	if err := a.setKeys("", cmp.Or(m.Separator, ".")); err != nil {
		return nil, err
	}
	if m.Order != "C" && m.Order != "F" {
		return nil, malformed("order %q", m.Order)
	}
	a.pipe, a.err = pipelineV2(a, t, m)
	return a, nil
}

// metaV3 is zarr.json of an array.
type metaV3 struct {
	Format   int             `json:"zarr_format"`
	Node     string          `json:"node_type"`
	Shape    []int           `json:"shape"`
	DataType json.RawMessage `json:"data_type"`
	Grid     named           `json:"chunk_grid"`
	Keys     named           `json:"chunk_key_encoding"`
	Fill     json.RawMessage `json:"fill_value"`
	Codecs   []named         `json:"codecs"`
	Attrs    map[string]any  `json:"attributes"`
	Storage  []any           `json:"storage_transformers"`
}

// named is a v3 extension: {"name", "configuration"}, or the name alone.
type named struct {
	Name   string          `json:"name"`
	Config json.RawMessage `json:"configuration"`
}

func (n *named) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &n.Name)
	}
	type plain named
	return json.Unmarshal(b, (*plain)(n))
}

func (n *named) config() (config, error) {
	c := config{}
	if len(n.Config) == 0 {
		return c, nil
	}
	err := json.Unmarshal(n.Config, &c)
	return c, err
}

var typesV3 = map[string]npy.Type{
	"bool": {Kind: 'b', Size: 1}, "int8": {Kind: 'i', Size: 1}, "int16": {Kind: 'i', Size: 2}, "int32": {Kind: 'i', Size: 4}, "int64": {Kind: 'i', Size: 8},
	"uint8": {Kind: 'u', Size: 1}, "uint16": {Kind: 'u', Size: 2}, "uint32": {Kind: 'u', Size: 4}, "uint64": {Kind: 'u', Size: 8},
	"float16": {Kind: 'f', Size: 2}, "float32": {Kind: 'f', Size: 4}, "float64": {Kind: 'f', Size: 8}, "string": {Kind: 'O', Size: 8},
}

// arrayV3 reads zarr.json of an array.
func arrayV3(name string, b []byte) (*Array, error) {
	var m metaV3
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "zarr metadata", Err: err}
	}
	if m.Format != 3 || m.Node != "array" {
		return nil, malformed("a zarr.json of format %d and node type %q", m.Format, m.Node)
	}
	if len(m.Storage) > 0 {
		return nil, unsupported("storage transformers")
	}
	a := &Array{Path: name, Shape: m.Shape, Attrs: m.Attrs}
	if err := a.typeV3(m.DataType); err != nil {
		return nil, err
	}
	if m.Grid.Name != "regular" {
		return nil, unsupported("chunk grid %q", m.Grid.Name)
	}
	var grid struct {
		Shape []int `json:"chunk_shape"`
	}
	if err := json.Unmarshal(m.Grid.Config, &grid); err != nil {
		return nil, malformed("chunk_grid: %v", err)
	}
	if err := a.layout(grid.Shape); err != nil {
		return nil, err
	}
	if err := a.setFill(m.Fill, true); err != nil {
		return nil, err
	}
	keys, err := m.Keys.config()
	if err != nil {
		return nil, malformed("chunk_key_encoding: %v", err)
	}
	switch m.Keys.Name {
	case "default":
		err = a.setKeys("c", cmp.Or(keys.text("separator"), "/"))
	case "v2":
		err = a.setKeys("", cmp.Or(keys.text("separator"), "."))
	default:
		err = unsupported("chunk key encoding %q", m.Keys.Name)
	}
	if err != nil {
		return nil, err
	}
	a.err = a.codecsV3(m.Codecs)
	return a, nil
}

// setKeys settles the names of chunks: prefix stands before the numbers.
func (a *Array) setKeys(prefix, sep string) error {
	if sep != "." && sep != "/" {
		return malformed("separator %q", sep)
	}
	a.key = func(index []int) string {
		key := join(index, sep)
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

func (a *Array) typeV3(raw json.RawMessage) error {
	var n named
	if err := json.Unmarshal(raw, &n); err != nil {
		return malformed("data_type: %v", err)
	}
	t, ok := typesV3[n.Name]
	if !ok {
		c, err := n.config()
		size := c.int("length_bytes", -1)
		switch {
		case err == nil && n.Name == "fixed_length_utf32" && size >= 0 && size%4 == 0 && size <= 1<<24:
			t = npy.Type{Kind: 'U', Size: size}
		case err == nil && n.Name == "null_terminated_bytes" && size >= 0 && size <= 1<<24:
			t = npy.Type{Kind: 'S', Size: size}
		default:
			return unsupported("data type %q", n.Name)
		}
	}
	a.Type, a.Text = t, t.Kind == 'O'
	return nil
}

// layout checks shape and chunks, and counts.
func (a *Array) layout(chunks []int) error {
	if len(chunks) != len(a.Shape) {
		return malformed("chunks %v for shape %v", chunks, a.Shape)
	}
	if len(chunks) > maxDims {
		return malformed("%d dimensions", len(chunks))
	}
	for i, c := range chunks {
		if c <= 0 || a.Shape[i] < 0 || a.Shape[i] > 1<<48 || c > 1<<48 {
			return malformed("chunks %v for shape %v", chunks, a.Shape)
		}
	}
	a.setChunks(chunks)
	if a.row = a.Type.Size; len(a.Shape) > 0 {
		for _, d := range a.Shape[1:] {
			if d > 0 && a.row > (1<<40)/d {
				return malformed("rows of shape %v are too large", a.Shape[1:])
			}
			a.row *= d
		}
	}
	_, err := bytesOf(chunks, max(a.Type.Size, 1))
	return err
}

func (a *Array) setChunks(chunks []int) {
	a.chunks, a.grid = chunks, make([]int, len(chunks))
	for i, c := range chunks {
		a.grid[i] = (a.Shape[i] + c - 1) / c
	}
}

// bytesOf is the size of a chunk, within the limit.
func bytesOf(chunk []int, size int) (int64, error) {
	n := int64(size)
	for _, c := range chunk {
		if n > maxChunk/int64(max(c, 1)) {
			return 0, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zarr", Want: fmt.Sprintf("chunks of at most %d bytes", maxChunk), Got: fmt.Sprintf("%v elements of %d bytes", chunk, size)}
		}
		n *= int64(c)
	}
	return n, nil
}

func join(index []int, sep string) string {
	parts := make([]string, len(index))
	for i, v := range index {
		parts[i] = strconv.Itoa(v)
	}
	return strings.Join(parts, sep)
}

// contiguous says that a chunk holds whole rows, one after the other as they are given.
func (a *Array) contiguous() bool {
	return len(a.Shape) > 0 && slices.Equal(a.chunks[1:], a.Shape[1:])
}
