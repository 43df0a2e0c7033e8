package mapping

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

func (d *mappedDataset) Info() *robocache.Info { return &d.info }

// Unwrap returns the base dataset.
func (d *mappedDataset) Unwrap() robocache.Dataset { return d.base }

// setCapabilities sets the capabilities of the base that hold for the mapping's streams and times.
// Recordings and video files have the base's streams and times, so they are cleared. Rows is
// cleared because a stream may take its timestamps from another one.
func (d *mappedDataset) setCapabilities() {
	d.capabilities = *d.base.Capabilities()
	c := &d.capabilities
	c.Origin = d.Origin
	c.Recording, c.Rows, c.VideoStart = nil, nil, nil
	if c.GatherRagged != nil {
		c.GatherRagged = d.GatherRagged
	}
	if c.LeaseFrames != nil {
		c.LeaseFrames = d.LeaseFrames
	}
	if c.Valid != nil {
		c.Valid = d.Valid
	}
	if c.Message != nil {
		c.Message = d.Message
	}
	if c.Clocks != nil {
		c.Clocks, c.TimesBy = d.Clocks, d.TimesBy
	}
	if c.Lacks != nil {
		c.Lacks = d.Lacks
	}
}

// Capabilities returns the capabilities that hold for the mapping's streams and times.
func (d *mappedDataset) Capabilities() *robocache.Capabilities { return &d.capabilities }

func (d *mappedDataset) Len(e int) int {
	if d.lengths != nil {
		if e < 0 || e >= len(d.lengths) {
			return 0
		}
		return d.lengths[e]
	}
	return d.base.Len(e)
}

func (d *mappedDataset) Episode(ctx context.Context, e int) (robocache.Episode, error) {
	ep, err := d.base.Episode(ctx, e)
	if err != nil {
		return ep, err
	}
	ep.Length = d.Len(e)
	if d.tasks != nil && d.tasks[e] != "" {
		ep.Tasks = []string{d.tasks[e]}
	}
	return ep, nil
}

// Lacks reports whether an episode lacks a source of a stream.
func (d *mappedDataset) Lacks(episode int, key string) bool {
	s := d.streams[key]
	return s != nil &&
		slices.ContainsFunc(
			s.parts,
			func(p sourcePart) bool { return robocache.Lacks(d.base, episode, p.key) },
		)
}

// streamNamed returns a stream of the result.
func (d *mappedDataset) streamNamed(key string) (*mappedStream, error) {
	s := d.streams[key]
	if s == nil {
		return nil, robocache.NotFound(
			"map",
			robocache.Where{"stream": key},
			"the mapped dataset has no such stream",
		)
	}
	return s, nil
}

// Origin returns the origin in the base.
func (d *mappedDataset) Origin(ctx context.Context, e int) (*robocache.Origin, error) {
	return robocache.OriginOf(ctx, d.base, e)
}

func (d *mappedDataset) Times(ctx context.Context, e int, key string) (_ []int64, err error) {
	if key == "" || key == "task" && d.streams["task"] == nil {
		if d.rowTimes == "" {
			return d.base.Times(ctx, e, d.rowSource)
		}
		key = d.rowTimes
	}
	s, err := d.streamNamed(key)
	if err != nil {
		return nil, err
	}
	t, err := d.base.Times(ctx, e, s.parts[0].key)
	if err != nil || !s.hasOwnTimes() {
		return t, err
	}
	if s.timestamps != "" {
		if t, err = d.timesFromValues(ctx, e, s, len(t)); err != nil {
			return nil, robocache.At(
				err,
				robocache.Where{"episode": d.info.EpisodeIndex(e), "stream": key},
			)
		}
	}
	if err := s.correctDrift(d.info.EpisodeIndex(e), key, t); err != nil {
		return nil, err
	}
	for i, v := range t {
		at := v + s.offset // both are within ±2^62
		if i > 0 && at < t[i-1] {
			return nil, robocache.Malformed(
				"map",
				robocache.Where{"episode": d.info.EpisodeIndex(e), "stream": key, "index": i},
				"timestamps go back",
			).Expected(fmt.Sprintf("at least %d ns", t[i-1]), fmt.Sprint(at))
		}
		t[i] = at
	}
	return t, nil
}

// correctDrift removes the drift from the timestamps of an episode, in place. episode is its index.
func (s *mappedStream) correctDrift(episode int64, key string, t []int64) error {
	if s.drift.IsZero() {
		return nil
	}
	// Timestamps beyond ±2^62 are rejected first, because their differences would overflow.
	if i := slices.IndexFunc(t, isOutOfRange); i >= 0 {
		return robocache.At(
			errOutOfRange(key, i, fmt.Sprint(t[i])),
			robocache.Where{"episode": episode},
		)
	}
	s.drift.Correct(t)
	if i := slices.IndexFunc(t, isOutOfRange); i >= 0 {
		return robocache.Misuse(
			"map",
			robocache.Where{"episode": episode, "stream": key},
			"drift: its moment at lies too far from the stream's timestamps",
		).Expected("a moment on the stream's own clock", fmt.Sprintf("%d ns", s.drift.At)).
			WithCause(errOutOfRange(key, i, fmt.Sprint(t[i])))
	}
	return nil
}

// isOutOfRange reports whether a timestamp is beyond ±2^62 ns, which no valid timestamp is.
func isOutOfRange(t int64) bool { return t > 1<<62 || t < -1<<62 }

// timesFromValues reads n timestamps from the values of a stream.
func (d *mappedDataset) timesFromValues(
	ctx context.Context,
	e int,
	s *mappedStream,
	n int,
) ([]int64, error) {
	if s.unitErr != nil {
		return nil, s.unitErr
	}
	f := d.base.Info().Feature(s.timestamps)
	raw := make([]byte, n*f.RowBytes())
	if err := d.base.Gather(ctx, s.timestamps, robocache.RowsOf(e, 0, n), raw); err != nil {
		return nil, err
	}
	return s.timesOf(f.DType, raw)
}

// timesOf converts the values of the stream of timestamps.
func (s *mappedStream) timesOf(dtype robocache.DType, raw []byte) ([]int64, error) {
	n := len(raw) / dtype.Size()
	t := make([]int64, n)
	if !dtype.Float() {
		for i, v := range robocache.Int64s(nil, dtype, raw) {
			if v > (1<<62)/s.unit || v < -(1<<62)/s.unit || dtype == robocache.Uint64 && v < 0 {
				return nil, errOutOfRange(s.timestamps, i, fmt.Sprint(v))
			}
			t[i] = v * s.unit
		}
		return t, nil
	}
	for i, v := range robocache.Float64s(make([]float64, 0, n), dtype, raw) {
		// Whole and fractional seconds are converted separately. Otherwise times since 1970 would
		// lose precision.
		whole, part := math.Modf(v)
		ns := float64(whole*float64(s.unit)) + math.RoundToEven(part*float64(s.unit))
		if !(math.Abs(ns) < 1<<62) {
			return nil, errOutOfRange(s.timestamps, i, fmt.Sprint(v))
		}
		t[i] = int64(whole)*s.unit + int64(math.RoundToEven(part*float64(s.unit)))
	}
	return t, nil
}

func errOutOfRange(key string, i int, got string) error {
	return robocache.Malformed("map", robocache.Where{"stream": key, "index": i}, "a timestamp").
		Expected("a number within ±2^62 ns", got)
}

func (d *mappedDataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	s, err := d.streamNamed(key)
	if err != nil {
		return err
	}
	if s.feature.Kind != robocache.KindNumeric || s.isRenamed() {
		return d.base.Gather(ctx, s.parts[0].key, rows, dst)
	}
	size := s.feature.RowBytes()
	if len(dst) != size*len(rows) {
		return robocache.Misuse("map gather", robocache.Where{"stream": key}, "").
			Expected(
				fmt.Sprintf("%d bytes for %d rows", size*len(rows), len(rows)),
				fmt.Sprint(len(dst)),
			)
	}
	return s.joinRows(dst, len(rows), func(k int) ([]byte, error) {
		p := s.parts[k]
		raw := make([]byte, p.rowBytes*len(rows))
		err := d.base.Gather(ctx, p.key, rows, raw)
		return raw, robocache.At(err, robocache.Where{"stream": p.key})
	})
}

// joinRows writes n rows of the stream to dst. read returns the same rows of a part.
func (s *mappedStream) joinRows(dst []byte, n int, read func(part int) ([]byte, error)) error {
	size := s.feature.RowBytes()
	at := -s.firstByte // start of the part in the row of the result, in bytes
	for k, p := range s.parts {
		lo, hi := max(at, 0), min(at+p.rowBytes, size)
		if lo < hi {
			raw, err := read(k)
			if err != nil {
				return err
			}
			for i := range n {
				copy(dst[i*size+lo:i*size+hi], raw[i*p.rowBytes+lo-at:])
			}
		}
		at += p.rowBytes
	}
	if s.scale != 0 {
		scaleInPlace(dst, s.feature.DType, s.scale)
	}
	return nil
}

// scaleInPlace multiplies values in float64 and rounds once to the type.
func scaleInPlace(b []byte, t robocache.DType, by float64) {
	n := t.Size()
	var one [1]float64
	for ; len(b) >= n; b = b[n:] {
		v := robocache.Float64s(one[:0], t, b[:n])[0] * by
		switch t {
		case robocache.Float64:
			binary.LittleEndian.PutUint64(b, math.Float64bits(v))
		case robocache.Float32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
		case robocache.Float16:
			binary.LittleEndian.PutUint16(b, kernel.Float64to16(v))
		case robocache.BFloat16:
			binary.LittleEndian.PutUint16(b, kernel.Float64toB16(v))
		}
	}
}

func (d *mappedDataset) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (_ []byte, _ []int, err error) {
	s, err := d.streamNamed(key)
	if err != nil {
		return nil, nil, err
	}
	return robocache.GatherRagged(ctx, d.base, s.parts[0].key, rows)
}

func (d *mappedDataset) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	s, err := d.streamNamed(key)
	if err != nil {
		return err
	}
	for i := range valid {
		valid[i] = 1
	}
	one := make([]uint8, len(valid))
	for _, p := range s.parts {
		if f := d.base.Info().Feature(p.key); !f.Masked {
			continue
		}
		if err := robocache.Valid(ctx, d.base, p.key, rows, one); err != nil {
			return err
		}
		for i, v := range one {
			valid[i] &= v
		}
	}
	return nil
}

func (d *mappedDataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (_ []string, err error) {
	if key == "task" && d.streams["task"] == nil {
		if d.tasks == nil {
			return d.base.Text(ctx, key, rows)
		}
		out := make([]string, len(rows))
		for i, r := range rows {
			if r.Episode < 0 || r.Episode >= len(d.tasks) || r.Index < 0 ||
				r.Index >= d.Len(r.Episode) {
				return nil, robocache.Misuse(
					"map text",
					robocache.Where{"episode": d.info.EpisodeIndex(r.Episode), "row": r.Index},
					"no such row",
				)
			}
			out[i] = d.tasks[r.Episode]
		}
		return out, nil
	}
	s, err := d.streamNamed(key)
	if err != nil {
		return nil, err
	}
	return d.base.Text(ctx, s.parts[0].key, rows)
}

func (d *mappedDataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	s, err := d.streamNamed(key)
	if err != nil {
		return err
	}
	return d.base.Frames(ctx, s.parts[0].key, rows, out)
}

// LeaseFrames returns leased images of the stream's source.
func (d *mappedDataset) LeaseFrames(
	ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) (done func(), err error) {
	s, err := d.streamNamed(key)
	if err != nil {
		return nil, err
	}
	return robocache.LeaseFrames(ctx, d.base, s.parts[0].key, rows, out)
}

// Clocks returns the clocks of the source. TimesBy applies the mapping's drift and offset to them.
func (d *mappedDataset) Clocks(key string) []string {
	s := d.streams[key]
	if s == nil || s.timestamps != "" {
		return nil
	}
	return robocache.ClocksOf(d.base, s.parts[0].key)
}

func (d *mappedDataset) TimesBy(
	ctx context.Context,
	e int,
	key, clock string,
) (_ []int64, err error) {
	s, err := d.streamNamed(key)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(d.Clocks(key), clock) {
		return nil, robocache.Unsupported(
			"map",
			robocache.Where{"stream": key},
			"the stream has no clock %s",
			clock,
		)
	}
	t, err := d.base.Capabilities().TimesBy(ctx, e, s.parts[0].key, clock)
	if err == nil {
		err = s.correctDrift(d.info.EpisodeIndex(e), key, t)
	}
	if err != nil {
		return nil, err
	}
	for i := range t {
		t[i] += s.offset
	}
	return t, nil
}

// Stats returns the statistics of the streams that are only renamed.
func (d *mappedDataset) Stats(ctx context.Context) (robocache.Stats, error) {
	all, err := d.base.Stats(ctx)
	if err != nil || all == nil {
		return nil, err
	}
	out := robocache.Stats{}
	for key, s := range d.streams {
		if x := all[s.parts[0].key]; x != nil && len(s.parts) == 1 && s.scale == 0 &&
			s.feature.Elements() == d.base.Info().Feature(s.parts[0].key).Elements() {
			out[key] = x
		}
	}
	return out, nil
}

func (d *mappedDataset) Close() error { return d.base.Close() }
