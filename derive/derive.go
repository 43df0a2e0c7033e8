// Package derive adds numeric streams to a dataset whose values a user computed once per episode.
//
// Contract:
//
//	derive.C1  A derived stream has one row for each row of its episode, on the clock of the rows.
//	derive.C2  A stream with the key of a stream of the dataset replaces it. Its stored statistics
//	           do not apply.
//	derive.C3  Values that fit the budget are in memory. Others are read from their file.
//	derive.C4  Feature.Derived is the hash of the values, so that states, contracts and statistics
//	           of other values differ.
//
// Intuitively, a file of rows stands behind each derived key, and everything else is the dataset's.
package derive

import (
	"context"
	"os"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// DefaultBudget is the default number of bytes of values that are held in memory.
const DefaultBudget = 256 << 20

// Stream describes the values of a derived stream: a file with the rows of its episodes, one after
// the other, little-endian and in C order.
type Stream struct {
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"`
	File  string          `json:"file"`
	Hash  string          `json:"hash"`
	// Positions lists the episodes in the file, ascending; nil: all.
	Positions []int `json:"positions"`
}

// values is the rows of a derived stream.
type values struct {
	feature robocache.Feature
	starts  []int64 // offset of each episode in the file; −1: not in it
	raw     []byte  // nil: in the file
	file    *os.File
}

// Dataset is a dataset with derived streams.
type Dataset struct {
	robocache.Dataset
	info    robocache.Info
	offered robocache.Capabilities
	streams map[string]*values
}

// Wrap returns a dataset with derived streams. It owns ds. budget is the number of bytes of values
// that are held in memory; 0: DefaultBudget. On error, the caller keeps ds.
func Wrap(ds robocache.Dataset, streams []Stream, budget int64) (_ *Dataset, err error) {
	d := &Dataset{Dataset: ds, info: *ds.Info(), streams: map[string]*values{}}
	d.info.Features = slices.Clone(d.info.Features)
	if budget <= 0 {
		budget = DefaultBudget
	}
	defer func() {
		if err != nil {
			d.closeFiles()
		}
	}()
	for _, s := range streams {
		v, err := d.openValues(&s, &budget)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": s.Key})
		}
		d.streams[s.Key] = v
		if old := d.info.Feature(s.Key); old != nil {
			*old = v.feature
		} else {
			d.info.Features = append(d.info.Features, v.feature)
		}
	}
	d.setCapabilities()
	return d, nil
}

// openValues opens the file of a stream, and reads it if it fits the budget.
func (d *Dataset) openValues(s *Stream, budget *int64) (*values, error) {
	v := &values{feature: robocache.Feature{
		Key: s.Key, Kind: robocache.KindNumeric, DType: s.DType, Shape: s.Shape, Derived: s.Hash,
		FPS: d.info.FPS,
	}}
	row := int64(v.feature.RowBytes())
	if old := d.Dataset.Info().
		Feature(s.Key); row <= 0 || s.Hash == "" ||
		d.streams[s.Key] != nil ||
		old != nil && old.Default {
		return nil, robocache.Misuse("derive", nil, "a stream of numbers with a key of its own").
			Expected("a shape, a dtype, a hash and a key", s.Key+" "+s.DType.String())
	}
	v.starts = slices.Repeat([]int64{-1}, d.info.Episodes)
	if s.Positions == nil {
		for e := range d.info.Episodes {
			s.Positions = append(s.Positions, e)
		}
	}
	var size int64
	for _, e := range s.Positions {
		if e < 0 || e >= d.info.Episodes {
			return nil, robocache.Misuse(
				"derive",
				robocache.Where{"position": e},
				"no such episode",
			)
		}
		v.starts[e] = size
		size += int64(d.Dataset.Len(e)) * row
	}
	where := robocache.Where{"file": s.File}
	f, err := os.Open(s.File)
	if err != nil {
		return nil, robocache.NotFound("derive", where, "the file of derived values").WithCause(err)
	}
	st, err := f.Stat()
	if err != nil || st.Size() != size {
		_ = f.Close()
		return nil, robocache.Malformed("derive", where, "the file of derived values").
			Expected(strconv.FormatInt(size, 10)+" bytes", sizeOf(st))
	}
	v.file = f
	if size > *budget {
		return v, nil
	}
	*budget -= size
	v.raw = make([]byte, size)
	_, err = f.ReadAt(v.raw, 0)
	_ = f.Close()
	if v.file = nil; err != nil && size > 0 {
		return nil, robocache.Malformed("derive", where, "reading derived values").WithCause(err)
	}
	return v, nil
}

func sizeOf(st os.FileInfo) string {
	if st == nil {
		return ""
	}
	return strconv.FormatInt(st.Size(), 10) + " bytes"
}

// setCapabilities sets the capabilities: those of the dataset, with answers for derived streams. No
// recording has the rows of the result.
func (d *Dataset) setCapabilities() {
	d.offered = *d.Dataset.Capabilities()
	own := d.offered
	c := &d.offered
	c.Recording = nil
	c.Origin = func(ctx context.Context, e int) (*robocache.Origin, error) {
		return robocache.OriginOf(ctx, d.Dataset, e)
	}
	if own.GatherRagged != nil {
		c.GatherRagged = func(
			ctx context.Context, key string, rows []robocache.Row,
		) ([]byte, []int, error) {
			if d.streams[key] != nil {
				return nil, nil, derivedRows(key, "rows of varying length")
			}
			return own.GatherRagged(ctx, key, rows)
		}
	}
	if own.LeaseFrames != nil {
		c.LeaseFrames = func(
			ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
		) (func(), error) {
			if d.streams[key] != nil {
				return nil, derivedRows(key, "images")
			}
			return own.LeaseFrames(ctx, key, rows, out)
		}
	}
	if own.Valid != nil {
		c.Valid = func(
			ctx context.Context, key string, rows []robocache.Row, valid []uint8,
		) error {
			if d.streams[key] != nil {
				for i := range valid {
					valid[i] = 1
				}
				return nil
			}
			return own.Valid(ctx, key, rows, valid)
		}
	}
	d.setClocks(&own)
}

// setClocks sets the capabilities that concern the clock and the source of a stream.
func (d *Dataset) setClocks(own *robocache.Capabilities) {
	c := &d.offered
	if own.Clocks != nil {
		c.Clocks = func(key string) []string {
			if d.streams[key] != nil {
				return nil
			}
			return own.Clocks(key)
		}
	}
	if own.TimesBy != nil {
		c.TimesBy = func(ctx context.Context, episode int, key, clock string) ([]int64, error) {
			if d.streams[key] != nil {
				return nil, derivedRows(key, "a clock of its own")
			}
			return own.TimesBy(ctx, episode, key, clock)
		}
	}
	if own.Message != nil {
		c.Message = func(key string) *robocache.MessageSource {
			if d.streams[key] != nil {
				return nil
			}
			return own.Message(key)
		}
	}
	if own.Rows != nil {
		c.Rows = func(ctx context.Context, episode int, key string) (int, error) {
			if d.streams[key] != nil {
				return d.Len(episode), nil
			}
			return own.Rows(ctx, episode, key)
		}
	}
	if own.Lacks != nil {
		c.Lacks = func(episode int, key string) bool {
			return d.streams[key] == nil && own.Lacks(episode, key)
		}
	}
}

// derivedRows returns the error of a request that does not fit a derived stream.
func derivedRows(key, what string) error {
	return robocache.Unsupported("derive", robocache.Where{"stream": key},
		"%s of a derived stream, which is plain numbers", what)
}

// Info returns the description of the dataset, with the derived streams.
func (d *Dataset) Info() *robocache.Info { return &d.info }

// Unwrap returns the dataset without derived streams.
func (d *Dataset) Unwrap() robocache.Dataset { return d.Dataset }

// Capabilities returns those of the dataset, with answers for derived streams.
func (d *Dataset) Capabilities() *robocache.Capabilities { return &d.offered }

// Times returns the timestamps of a stream. Those of a derived stream are those of the rows.
func (d *Dataset) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	if d.streams[key] != nil {
		key = ""
	}
	return d.Dataset.Times(ctx, episode, key)
}

// Gather copies rows of a stream.
func (d *Dataset) Gather(
	ctx context.Context, key string, rows []robocache.Row, dst []byte,
) error {
	v := d.streams[key]
	if v == nil {
		return d.Dataset.Gather(ctx, key, rows, dst)
	}
	size := v.feature.RowBytes()
	if len(dst) != len(rows)*size {
		return robocache.Misuse(
			"gather",
			robocache.Where{"stream": key},
			"a buffer of another size",
		)
	}
	for from := 0; from < len(rows); {
		r, to := rows[from], from+1
		for to < len(rows) && rows[to] == (robocache.Row{Episode: r.Episode, Index: r.Index + to - from}) {
			to++
		}
		where := robocache.Where{"stream": key, "episode": d.info.EpisodeIndex(r.Episode)}
		if r.Episode < 0 || r.Episode >= len(v.starts) || r.Index < 0 ||
			r.Index+to-from > d.Len(r.Episode) {
			return robocache.Misuse("gather", where, "no such row")
		}
		if v.starts[r.Episode] < 0 {
			return robocache.Malformed(
				"gather",
				where,
				"the stream was not derived for this episode",
			)
		}
		at := v.starts[r.Episode] + int64(r.Index*size)
		part := dst[from*size : to*size]
		if v.raw != nil {
			copy(part, v.raw[at:])
		} else if _, err := v.file.ReadAt(part, at); err != nil {
			return robocache.Malformed("gather", where, "reading derived values").WithCause(err)
		}
		from = to
	}
	return nil
}

// Text returns the rows of a text stream.
func (d *Dataset) Text(
	ctx context.Context, key string, rows []robocache.Row,
) ([]string, error) {
	if d.streams[key] != nil {
		return nil, derivedRows(key, "text")
	}
	return d.Dataset.Text(ctx, key, rows)
}

// Frames locates the images of rows.
func (d *Dataset) Frames(
	ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) error {
	if d.streams[key] != nil {
		return derivedRows(key, "images")
	}
	return d.Dataset.Frames(ctx, key, rows, out)
}

// Stats returns the stored statistics of the streams that are not derived.
func (d *Dataset) Stats(ctx context.Context) (robocache.Stats, error) {
	own, err := d.Dataset.Stats(ctx)
	if err != nil {
		return nil, err
	}
	out := robocache.Stats{}
	for k, s := range own {
		if d.streams[k] == nil {
			out[k] = s
		}
	}
	return out, nil
}

func (d *Dataset) closeFiles() {
	for _, v := range d.streams {
		if v.file != nil {
			_ = v.file.Close()
		}
	}
}

// Close releases the files of derived values, and the dataset.
func (d *Dataset) Close() error {
	d.closeFiles()
	return d.Dataset.Close()
}
