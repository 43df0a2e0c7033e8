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

func (d *mapped) Info() *robocache.Info { return &d.info }

// Unwrap gives the dataset that lies under the mapping.
func (d *mapped) Unwrap() robocache.Dataset { return d.base }

// setCapabilities sets the capabilities: those of the base, with the mapping's streams and times.
// Its recordings and video files have the base's streams and times. Rows is cleared because a
// stream may take its timestamps from another one.
func (d *mapped) setCapabilities() {
	d.offered = *d.base.Capabilities()
	c := &d.offered
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
	if c.Clocks != nil {
		c.Clocks, c.TimesBy = d.Clocks, d.TimesBy
	}
	if c.Lacks != nil {
		c.Lacks = d.Lacks
	}
}

// Capabilities returns those of the base, with the mapping's streams and times.
func (d *mapped) Capabilities() *robocache.Capabilities { return &d.offered }

func (d *mapped) Len(e int) int {
	if d.lengths != nil {
		if e < 0 || e >= len(d.lengths) {
			return 0
		}
		return d.lengths[e]
	}
	return d.base.Len(e)
}

func (d *mapped) Episode(ctx context.Context, e int) (robocache.Episode, error) {
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
func (d *mapped) Lacks(episode int, key string) bool {
	s := d.streams[key]
	return s != nil &&
		slices.ContainsFunc(
			s.parts,
			func(p part) bool { return robocache.Lacks(d.base, episode, p.key) },
		)
}

// stream finds a stream of the result.
func (d *mapped) stream(key string) (*stream, error) {
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

// Origin is the base's.
func (d *mapped) Origin(ctx context.Context, e int) (*robocache.Origin, error) {
	return robocache.OriginOf(ctx, d.base, e)
}

func (d *mapped) Times(ctx context.Context, e int, key string) (_ []int64, err error) {
	if key == "" || key == "task" && d.streams["task"] == nil {
		if d.moved == "" {
			return d.base.Times(ctx, e, d.own)
		}
		key = d.moved
	}
	s, err := d.stream(key)
	if err != nil {
		return nil, err
	}
	t, err := d.base.Times(ctx, e, s.parts[0].key)
	if err != nil || !s.moved() {
		return t, err
	}
	if s.timestamps != "" {
		if t, err = d.timestamped(ctx, e, s, len(t)); err != nil {
			return nil, robocache.At(
				err,
				robocache.Where{"episode": d.info.EpisodeIndex(e), "stream": key},
			)
		}
	}
	if err := s.correct(d.info.EpisodeIndex(e), key, t); err != nil {
		return nil, err
	}
	for i, v := range t {
		at := v + s.offset // both are within 2^62
		if i > 0 && at < t[i-1] {
			return nil, robocache.Malformed("map", robocache.Where{"episode": d.info.EpisodeIndex(e), "stream": key, "index": i}, "timestamps go back").
				Expected(fmt.Sprintf("at least %d ns", t[i-1]), fmt.Sprint(at))
		}
		t[i] = at
	}
	return t, nil
}

// correct takes the drift off the times of the episode with an index, in place.
func (s *stream) correct(episode int64, key string, t []int64) error {
	if s.drift.IsZero() {
		return nil
	}
	// Before a timestamp is corrected it must be one: the differences of those beyond ±2^62
	// overflow.
	if i := slices.IndexFunc(t, far); i >= 0 {
		return robocache.At(beyond(key, i, fmt.Sprint(t[i])), robocache.Where{"episode": episode})
	}
	s.drift.Correct(t)
	if i := slices.IndexFunc(t, far); i >= 0 {
		return robocache.Misuse("map", robocache.Where{"episode": episode, "stream": key}, "drift: its moment at lies too far from the stream's timestamps").
			Expected("a moment on the stream's own clock", fmt.Sprintf("%d ns", s.drift.At)).
			WithCause(beyond(key, i, fmt.Sprint(t[i])))
	}
	return nil
}

// far says that a timestamp is none: beyond ±2^62 ns.
func far(t int64) bool { return t > 1<<62 || t < -1<<62 }

// timestamped reads n timestamps from the values of a stream.
func (d *mapped) timestamped(ctx context.Context, e int, s *stream, n int) ([]int64, error) {
	if s.unitErr != nil {
		return nil, s.unitErr
	}
	f := d.base.Info().Feature(s.timestamps)
	raw := make([]byte, n*f.RowBytes())
	if err := d.base.Gather(ctx, s.timestamps, robocache.RowsOf(e, 0, n), raw); err != nil {
		return nil, err
	}
	t := make([]int64, n)
	if !f.DType.Float() {
		for i, v := range robocache.Int64s(nil, f.DType, raw) {
			if v > (1<<62)/s.unit || v < -(1<<62)/s.unit || f.DType == robocache.Uint64 && v < 0 {
				return nil, beyond(s.timestamps, i, fmt.Sprint(v))
			}
			t[i] = v * s.unit
		}
		return t, nil
	}
	for i, v := range robocache.Float64s(make([]float64, 0, n), f.DType, raw) {
		// In two parts: seconds since 1970 with a fraction keep what float64 has.
		whole, part := math.Modf(v)
		ns := float64(whole*float64(s.unit)) + math.RoundToEven(part*float64(s.unit))
		if !(math.Abs(ns) < 1<<62) {
			return nil, beyond(s.timestamps, i, fmt.Sprint(v))
		}
		t[i] = int64(whole)*s.unit + int64(math.RoundToEven(part*float64(s.unit)))
	}
	return t, nil
}

func beyond(key string, i int, got string) error {
	return robocache.Malformed("map", robocache.Where{"stream": key, "index": i}, "a timestamp").
		Expected("a number within ±2^62 ns", got)
}

func (d *mapped) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	s, err := d.stream(key)
	if err != nil {
		return err
	}
	if s.feature.Kind != robocache.KindNumeric || s.plain() {
		return d.base.Gather(ctx, s.parts[0].key, rows, dst)
	}
	size := s.feature.RowBytes()
	if len(dst) != size*len(rows) {
		return robocache.Misuse("map gather", robocache.Where{"stream": key}, "").
			Expected(fmt.Sprintf("%d bytes for %d rows", size*len(rows), len(rows)), fmt.Sprint(len(dst)))
	}
	at := -s.from // of the part in the row of the result, in bytes
	for _, p := range s.parts {
		lo, hi := max(at, 0), min(at+p.row, size)
		if lo < hi {
			raw := make([]byte, p.row*len(rows))
			if err := robocache.At(
				d.base.Gather(ctx, p.key, rows, raw),
				robocache.Where{"stream": p.key},
			); err != nil {
				return err
			}
			for i := range rows {
				copy(dst[i*size+lo:i*size+hi], raw[i*p.row+lo-at:])
			}
		}
		at += p.row
	}
	if s.scale != 0 {
		scale(dst, s.feature.DType, s.scale)
	}
	return nil
}

// scale multiplies in place, in float64, with one rounding to the type.
func scale(b []byte, t robocache.DType, by float64) {
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

func (d *mapped) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (_ []byte, _ []int, err error) {
	s, err := d.stream(key)
	if err != nil {
		return nil, nil, err
	}
	return robocache.GatherRagged(ctx, d.base, s.parts[0].key, rows)
}

func (d *mapped) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	s, err := d.stream(key)
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

func (d *mapped) Text(
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
	s, err := d.stream(key)
	if err != nil {
		return nil, err
	}
	return d.base.Text(ctx, s.parts[0].key, rows)
}

func (d *mapped) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	s, err := d.stream(key)
	if err != nil {
		return err
	}
	return d.base.Frames(ctx, s.parts[0].key, rows, out)
}

// LeaseFrames returns leased images of the stream's source.
func (d *mapped) LeaseFrames(
	ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) (done func(), err error) {
	s, err := d.stream(key)
	if err != nil {
		return nil, err
	}
	return robocache.LeaseFrames(ctx, d.base, s.parts[0].key, rows, out)
}

// Clocks and TimesBy are the source's, with the mapping's drift and offset.
func (d *mapped) Clocks(key string) []string {
	s := d.streams[key]
	if s == nil || s.timestamps != "" {
		return nil
	}
	return robocache.ClocksOf(d.base, s.parts[0].key)
}

func (d *mapped) TimesBy(ctx context.Context, e int, key, clock string) (_ []int64, err error) {
	s, err := d.stream(key)
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
		err = s.correct(d.info.EpisodeIndex(e), key, t)
	}
	if err != nil {
		return nil, err
	}
	for i := range t {
		t[i] += s.offset
	}
	return t, nil
}

// Stats are those of streams that are only renamed.
func (d *mapped) Stats(ctx context.Context) (robocache.Stats, error) {
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

func (d *mapped) Close() error { return d.base.Close() }
