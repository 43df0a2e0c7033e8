package query

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// An index file holds the numeric columns of a dataset, channel by channel:
//
//	magic      8 bytes
//	size       of the header, uint64
//	header     JSON: indexHeader
//	sections   little-endian, each at a multiple of 64 bytes
//
// Sections are: the first row of each episode and the number of all rows (uint64); timestamps (a
// start per episode if all lie on the grid of the rate, else one per row, int64); for each channel
// of each column, its rows, then per episode the least and the greatest number (float64) and
// whether a NaN or an infinity occurs (uint8).

const (
	indexMagic   = "RCINDEX1"
	indexAlign   = 64
	maxIndexHead = 64 << 20
)

// indexHeader describes an index file.
type indexHeader struct {
	Fingerprint string         `json:"fingerprint"`
	Dataset     string         `json:"dataset"` // as it was opened, without secrets
	Episodes    int            `json:"episodes"`
	Rows        int            `json:"rows"`
	Grid        robocache.Rate `json:"grid,omitzero"` // zero: a timestamp per row
	HasTimes    bool           `json:"has_times"`
	Columns     []indexColumn  `json:"columns"`
	Starts      int64          `json:"starts"` // offset of a section
	Times       int64          `json:"times"`
	Size        int64          `json:"size"` // of the file
}

// indexColumn describes a column.
type indexColumn struct {
	Key      string          `json:"key"`
	DType    robocache.DType `json:"dtype"` // float32 or float64
	Channels int             `json:"channels"`
	Values   int64           `json:"values"` // offset of the first channel
	Bounds   int64           `json:"bounds"`
	Marks    int64           `json:"marks"`
}

// Index is an open index. It is safe for concurrent use until Close.
type Index struct {
	header  indexHeader
	columns map[string]*indexColumn
	data    []byte
	starts  []uint64
	close   func() error
}

// section returns n elements of type T at an offset.
func section[T any](data []byte, offset int64, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&data[offset])), n)
}

// alignUp rounds an offset up to a multiple of indexAlign.
func alignUp(offset int64) int64 { return (offset + indexAlign - 1) / indexAlign * indexAlign }

// layOut sets the offsets of the sections and the size of the file.
func (h *indexHeader) layOut(headerBytes int64) {
	next := alignUp(headerBytes)
	reserve := func(elements, size int) int64 {
		at := next
		next = alignUp(next + int64(elements)*int64(size))
		return at
	}
	h.Starts = reserve(h.Episodes+1, 8)
	switch {
	case !h.HasTimes:
	case !h.Grid.Zero():
		h.Times = reserve(h.Episodes, 8)
	default:
		h.Times = reserve(h.Rows, 8)
	}
	for i := range h.Columns {
		c := &h.Columns[i]
		c.Values = reserve(c.Channels*h.Rows, c.DType.Size())
		c.Bounds = reserve(c.Channels*h.Episodes, 16)
		c.Marks = reserve(c.Channels*h.Episodes, 1)
	}
	h.Size = next
}

// OpenIndex opens an index file. It returns ErrNotFound if there is none, and ErrMalformed if it is
// damaged or belongs to another state of the dataset. The caller must call Close.
func OpenIndex(ctx context.Context, path string, ds robocache.Dataset) (_ *Index, err error) {
	defer robocache.LocateIn(&err, "file", path)
	fingerprint, err := Fingerprint(ctx, ds)
	if err != nil {
		return nil, err
	}
	data, closeMap, err := mapWholeFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, robocache.NotFound("find", nil, "there is no index")
	}
	if err != nil {
		return nil, err
	}
	x := &Index{data: data, close: closeMap, columns: map[string]*indexColumn{}}
	if err := x.parse(ds, fingerprint); err != nil {
		_ = closeMap()
		return nil, err
	}
	return x, nil
}

// parse reads the header and checks all offsets.
func (x *Index) parse(ds robocache.Dataset, fingerprint string) error {
	bad := func(text string) error {
		return robocache.Malformed("find", nil, "%s", text).
			WithHint("Build the index again: %s.", robocache.Command("find --index URI"))
	}
	const fixed = len(indexMagic) + 8
	if len(x.data) < fixed || string(x.data[:len(indexMagic)]) != indexMagic {
		return bad("the file is not an index")
	}
	size := binary.LittleEndian.Uint64(x.data[len(indexMagic):])
	if size > maxIndexHead || int(size) > len(x.data)-fixed {
		return bad("the index is cut off")
	}
	if err := json.Unmarshal(x.data[fixed:fixed+int(size)], &x.header); err != nil {
		return bad("the header of the index is damaged")
	}
	h := x.header
	if h.Fingerprint != fingerprint || h.Episodes != ds.Info().Episodes {
		return bad(
			fmt.Sprintf("the index is of another state of the dataset, or was built with other "+
				"values of %s, %s or %s", robocache.Option("map"), robocache.Option("rows_hz"),
				robocache.Option("split")),
		)
	}
	isSized := h.Rows >= 0
	for _, c := range h.Columns {
		most := len(x.data) / max(1, c.Channels) // so that no product overflows
		isSized = isSized && c.Channels >= 0 && h.Rows <= most && h.Episodes <= most &&
			(c.DType == robocache.Float32 || c.DType == robocache.Float64)
	}
	isSized = isSized && h.Rows <= len(x.data) && h.Episodes <= len(x.data)
	expected := h
	expected.Columns = slices.Clone(h.Columns)
	if isSized {
		expected.layOut(int64(fixed) + int64(size))
	}
	if !isSized || expected.Size != int64(len(x.data)) || expected.Size != h.Size ||
		!slices.Equal(expected.Columns, h.Columns) || expected.Starts != h.Starts ||
		expected.Times != h.Times {
		return bad("the index is damaged or cut off")
	}
	x.starts = section[uint64](x.data, h.Starts, h.Episodes+1)
	for e := range h.Episodes {
		if x.starts[e+1]-x.starts[e] != uint64(ds.Len(e)) {
			return bad("the index is damaged")
		}
	}
	if x.starts[0] != 0 || x.starts[h.Episodes] != uint64(h.Rows) {
		return bad("the index is damaged")
	}
	for i := range x.header.Columns {
		c := &x.header.Columns[i]
		f := ds.Info().Feature(c.Key)
		if f == nil || f.Elements() != c.Channels {
			return bad("the index has other columns")
		}
		x.columns[c.Key] = c
	}
	return nil
}

// Close releases the file.
func (x *Index) Close() error {
	if x == nil {
		return nil
	}
	return x.close()
}

// Keys returns the keys of the columns in the index.
func (x *Index) Keys() []string {
	keys := make([]string, 0, len(x.header.Columns))
	for _, c := range x.header.Columns {
		keys = append(keys, c.Key)
	}
	return keys
}

// Size returns the bytes of the index.
func (x *Index) Size() int64 { return x.header.Size }

// has reports whether the index has a column. x may be nil.
func (x *Index) has(key string) bool { return x != nil && x.columns[key] != nil }

// timesOf returns the timestamps of an episode, or nil if the index has none.
func (x *Index) timesOf(position int) []int64 {
	h := &x.header
	if !h.HasTimes {
		return nil
	}
	from, to := x.starts[position], x.starts[position+1]
	if h.Grid.Zero() {
		return section[int64](x.data, h.Times, h.Rows)[from:to]
	}
	first := section[int64](x.data, h.Times, h.Episodes)[position]
	out := make([]int64, to-from)
	for i := range out {
		out[i] = first + h.Grid.Nanos(int64(i))
	}
	return out
}

// channelsOf returns the values of a column in the episode of run.
func (x *Index) channelsOf(run *episodeRun, c *column) [][]float64 {
	stored := x.columns[c.feature.Key]
	from, to := x.starts[run.position], x.starts[run.position+1]
	out := run.channels(c.channelCount())
	for i := range out {
		channel := max(c.channel, i)
		if stored.DType == robocache.Float64 {
			all := section[float64](x.data, stored.Values, stored.Channels*x.header.Rows)
			out[i] = all[channel*x.header.Rows:][from:to:to]
			continue
		}
		all := section[float32](x.data, stored.Values, stored.Channels*x.header.Rows)
		out[i] = run.floats(int(to - from))
		for k, v := range all[channel*x.header.Rows:][from:to] {
			out[i][k] = float64(v)
		}
	}
	return out
}

// reachOf returns the reach of a column in an episode. x may be nil.
func (x *Index) reachOf(c *column, position int) reach {
	if !x.has(c.feature.Key) {
		return unknownReach
	}
	stored := x.columns[c.feature.Key]
	n := stored.Channels * x.header.Episodes
	bounds := section[[2]float64](x.data, stored.Bounds, n)
	marks := section[uint8](x.data, stored.Marks, n)
	out := reach{lo: math.Inf(1), hi: math.Inf(-1), exact: true}
	for i := range c.channelCount() {
		at := max(c.channel, i)*x.header.Episodes + position
		out.lo = min(out.lo, bounds[at][0])
		out.hi = max(out.hi, bounds[at][1])
		out.nan = out.nan || marks[at]&markNaN != 0
		out.exact = out.exact && marks[at] == 0
	}
	return out
}

// The marks of a channel in an episode.
const (
	markNaN      = 1
	markInfinity = 2
)

// boundsOf returns the least and the greatest number of a channel, and its marks.
func boundsOf(values []float64) (bounds [2]float64, mark uint8) {
	bounds = [2]float64{math.Inf(1), math.Inf(-1)}
	for _, v := range values {
		switch {
		case v != v:
			mark |= markNaN
			continue
		case math.IsInf(v, 0):
			mark |= markInfinity
		}
		bounds = [2]float64{min(bounds[0], v), max(bounds[1], v)}
	}
	return bounds, mark
}
