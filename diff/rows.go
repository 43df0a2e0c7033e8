package diff

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/goatnote-inc/robocache"
)

// side is one of the two datasets.
type side struct {
	ds      robocache.Dataset
	streams []*stream            // compared by value, sorted by key
	cameras []*robocache.Feature // sorted by key
	// knowsTime reports whether rows have times that are not only assumed
	knowsTime bool
}

// stream is a feature whose rows are compared by value.
type stream struct {
	*robocache.Feature
	mask string // key of the stream that states which rows hold a value, or ""
}

// newSide sorts the features of a dataset. Bookkeeping columns are left out: the positions of the
// rows imply them.
func newSide(ctx context.Context, ds robocache.Dataset) *side {
	s := &side{ds: ds, knowsTime: robocache.KnowsTime(ctx, ds)}
	info := ds.Info()
	for i := range info.Features {
		f := &info.Features[i]
		base, isMask := strings.CutSuffix(f.Key, robocache.ValidSuffix)
		switch {
		case f.Default, isMask && info.Feature(base) != nil:
		case f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo:
			s.cameras = append(s.cameras, f)
		default:
			x := &stream{Feature: f}
			if mask := info.Feature(f.Key + robocache.ValidSuffix); mask != nil {
				x.mask = mask.Key
			}
			s.streams = append(s.streams, x)
		}
	}
	slices.SortFunc(s.streams, func(x, y *stream) int { return strings.Compare(x.Key, y.Key) })
	slices.SortFunc(s.cameras, func(x, y *robocache.Feature) int {
		return strings.Compare(x.Key, y.Key)
	})
	return s
}

// stream returns the stream with a key, or nil.
func (s *side) stream(key string) *stream {
	i := slices.IndexFunc(s.streams, func(x *stream) bool { return x.Key == key })
	if i < 0 {
		return nil
	}
	return s.streams[i]
}

// rowCount returns the number of rows of a stream in an episode. ok is false if the episode lacks
// the stream.
func (s *side) rowCount(
	ctx context.Context, episode int, f *robocache.Feature,
) (n int, ok bool, err error) {
	if robocache.Lacks(s.ds, episode, f.Key) {
		return 0, false, nil
	}
	n, err = robocache.RowsIn(ctx, s.ds, episode, f)
	return n, true, err
}

// located adds the dataset and the episode to an error.
func (s *side) located(err error, episode int, key string) error {
	return robocache.At(err, robocache.Where{
		"dataset": robocache.Redact(s.ds.Info().URI),
		"episode": s.ds.Info().EpisodeIndex(episode),
		"stream":  key,
	})
}

// rowBlock holds consecutive rows in a form that depends on their values only: not on the dtype,
// nor on the container.
type rowBlock struct {
	data []byte
	ends []int // end of each row in data
	// numbers are the elements of numeric rows of one width, else nil
	numbers []float64
	width   int
}

// row returns the bytes of a row.
func (b *rowBlock) row(i int) []byte {
	from := 0
	if i > 0 {
		from = b.ends[i-1]
	}
	return b.data[from:b.ends[i]]
}

const (
	noValue  = 0 // first byte of a row without a value
	hasValue = 1
	// maxBlockBytes bounds the stored bytes of a block of fixed width, and blockRows its rows.
	maxBlockBytes = 4 << 20
	maxBlockRows  = 1 << 14
	maxWideRows   = 64 // rows of a block whose width is not known
)

// blockRows returns the number of rows that are read at once.
func (x *stream) blockRows() int {
	if size := x.RowBytes(); size > 0 {
		return min(maxBlockRows, max(1, maxBlockBytes/size))
	}
	if x.Kind == robocache.KindText || x.Kind == robocache.KindEvent {
		return maxBlockRows / 8
	}
	return maxWideRows
}

// eachBlock calls fn for the blocks of n rows of a stream.
func (s *side) eachBlock(
	ctx context.Context, x *stream, episode, n int, rounded bool, fn func(b *rowBlock) error,
) error {
	size := x.blockRows()
	for from := 0; from < n; from += size {
		b, err := s.readRows(ctx, x, robocache.RowsOf(episode, from, min(size, n-from)), rounded)
		if err != nil {
			return s.located(err, episode, x.Key)
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}

// readRows reads rows of a stream. rounded rounds numbers to float32, so that the rows of a float64
// stream and of its float32 copy are equal.
func (s *side) readRows(
	ctx context.Context, x *stream, rows []robocache.Row, rounded bool,
) (*rowBlock, error) {
	valid, err := s.validity(ctx, x, rows)
	if err != nil {
		return nil, err
	}
	b := &rowBlock{ends: make([]int, len(rows))}
	addRow := func(i int, payload func()) {
		if valid != nil && valid[i] == 0 {
			b.data = append(b.data, noValue)
		} else {
			b.data = append(b.data, hasValue)
			at := len(b.data)
			b.data = append(b.data, 0, 0, 0, 0)
			payload()
			binary.LittleEndian.PutUint32(b.data[at:], uint32(len(b.data)-at-4))
		}
		b.ends[i] = len(b.data)
	}
	switch {
	case x.Kind == robocache.KindText || x.Kind == robocache.KindEvent:
		texts, err := s.ds.Text(ctx, x.Key, rows)
		if err != nil {
			return nil, err
		}
		if x.Kind == robocache.KindEvent {
			texts = canonicalJSON(texts)
		}
		for i, text := range texts {
			addRow(i, func() { b.data = append(b.data, text...) })
		}
		return b, nil
	case x.RowBytes() == 0:
		raw, counts, err := robocache.GatherRagged(ctx, s.ds, x.Key, rows)
		if err != nil {
			return nil, err
		}
		size := x.Elements() * x.DType.Size()
		for i, count := range counts {
			addRow(i, func() {
				b.data = appendNumbers(b.data, x.DType, raw[:count*size], rounded)
			})
			raw = raw[count*size:]
		}
		return b, nil
	}
	raw := make([]byte, len(rows)*x.RowBytes())
	if err := s.ds.Gather(ctx, x.Key, rows, raw); err != nil {
		return nil, err
	}
	b.width = x.Elements()
	b.data = make([]byte, 0, len(rows)*(5+8*b.width))
	b.numbers = robocache.Float64s(make([]float64, 0, len(rows)*b.width), x.DType, raw)
	size := x.RowBytes()
	for i := range rows {
		addRow(i, func() {
			b.data = appendNumbers(b.data, x.DType, raw[i*size:(i+1)*size], rounded)
		})
	}
	return b, nil
}

// validity returns which rows of a stream hold a value; nil if all do.
func (s *side) validity(
	ctx context.Context, x *stream, rows []robocache.Row,
) ([]uint8, error) {
	if x.mask == "" {
		return robocache.Validity(ctx, s.ds, x.Feature, rows)
	}
	mask := s.ds.Info().Feature(x.mask)
	raw := make([]byte, len(rows)*mask.RowBytes())
	if mask.RowBytes() != 1 {
		return nil, robocache.Unsupported(
			"diff", robocache.Where{"stream": x.mask}, "the mask is no bool",
		)
	}
	return raw, s.ds.Gather(ctx, x.mask, rows, raw)
}

// appendNumbers appends elements as float64, in a form that is equal for equal numbers. An integer
// that float64 cannot hold keeps its own bits.
func appendNumbers(dst []byte, d robocache.DType, raw []byte, rounded bool) []byte {
	isWide := d == robocache.Int64 || d == robocache.Uint64
	size := d.Size()
	var one [1]float64
	for ; len(raw) >= size && size > 0; raw = raw[size:] {
		v := robocache.Float64s(one[:0], d, raw[:size])[0]
		bits := math.Float64bits(v)
		switch {
		case v != v:
			bits = math.Float64bits(math.NaN())
		case v == 0:
			bits = 0
		case isWide && math.Abs(v) >= 1<<53:
			bits = binary.LittleEndian.Uint64(raw)
		case rounded && !isWide:
			bits = math.Float64bits(float64(float32(v)))
		}
		dst = binary.LittleEndian.AppendUint64(dst, bits)
	}
	return dst
}

// canonicalJSON returns JSON texts with sorted keys and without spaces. A text that is no JSON is
// unchanged.
func canonicalJSON(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		if i > 0 && text == texts[i-1] {
			out[i] = out[i-1]
			continue
		}
		out[i] = text
		var value any
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if decoder.Decode(&value) != nil {
			continue
		}
		if b, err := json.Marshal(value); err == nil {
			out[i] = string(b)
		}
	}
	return out
}

// rowHashes returns a hash of each of n rows of a stream. Numbers are rounded to float32.
func (s *side) rowHashes(ctx context.Context, x *stream, episode, n int) ([]uint64, error) {
	hashes := make([]uint64, 0, n)
	err := s.eachBlock(ctx, x, episode, n, true, func(b *rowBlock) error {
		for i := range b.ends {
			hashes = append(hashes, xxh3.Hash(b.row(i)))
		}
		return nil
	})
	return hashes, err
}
