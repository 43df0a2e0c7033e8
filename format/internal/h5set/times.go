package h5set

import (
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Rows returns the number of rows of a stream in an episode.
func (s *Set) Rows(ctx context.Context, episode int, key string) (n int, err error) {
	defer crash.Recover(s.About.Format+" rows", &err)
	stream, err := s.streamIndex(key)
	if err != nil {
		return n, err
	}
	if err := s.op.Episode(len(s.Episodes), episode); err != nil {
		return n, err
	}
	return s.rowCount(ctx, episode, stream)
}

// rowCount returns the number of rows of a stream in an episode. If stream is -1, it returns the
// number of rows of the episode.
func (s *Set) rowCount(ctx context.Context, episode, stream int) (int, error) {
	if stream < 0 || s.Streams[stream].Clock == "" {
		return s.Episodes[episode].Length, nil
	}
	dataset, err := s.episodeDataset(ctx, episode, stream)
	if err != nil {
		return 0, err
	}
	return int(dataset.Rows()), nil
}

// Times returns the timestamps of an episode's rows: the stored ones, or those computed from the
// rate.
func (s *Set) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer crash.Recover(s.About.Format+" times", &err)
	if err := s.op.Episode(len(s.Episodes), episode); err != nil {
		return out, err
	}
	stream := -1
	if key != "" {
		if stream, err = s.streamIndex(key); err != nil {
			return out, err
		}
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	e := &s.Episodes[episode]
	length, err := s.rowCount(ctx, episode, stream)
	if err != nil {
		return out, err
	}
	path := ""
	switch {
	case stream >= 0 && s.Streams[stream].Clock != "":
		path = s.Streams[stream].times
	case e.Times != "" || !s.hz:
		if path = e.Times; path == "" && !s.noRowTimes {
			path = s.rowTimes
		}
	}
	if path != "" {
		return s.readTimestamps(ctx, e, path, length)
	}
	if s.About.FPS.Zero() {
		return nil, s.About.NoClock(
			s.About.Format,
			robocache.Where{"file": e.File.Name()},
			"the file holds neither timestamps nor a rate",
		)
	}
	return reader.Grid(s.About.FPS, length), nil
}

// readTimestamps reads timestamps from the file.
func (s *Set) readTimestamps(
	ctx context.Context,
	e *Episode,
	path string,
	length int,
) (_ []int64, err error) {
	defer robocache.LocateIn(&err, "episode", e.Index)
	defer robocache.LocateIn(&err, "file", e.File.Name())
	walker, err := e.Walker(ctx)
	if err != nil {
		return nil, err
	}
	d, err := walker.Dataset(path)
	if err != nil {
		return nil, err
	}
	bad := func(where robocache.Where, want, got string) error {
		return robocache.At(
			robocache.Malformed(s.About.Format, robocache.Where{"pointer": d.Name()}, "").
				Expected(want, got),
			where,
		)
	}
	unit := s.units[path]
	if err := unit.err; err != nil {
		return nil, err
	}
	t, _ := elementOf(d)
	if !isTimes(d) || d.Rows() != int64(length) {
		if err := bad(nil, fmt.Sprintf("%d timestamps", length),
			fmt.Sprintf("shape %v of %s", d.Shape, d.Type)); err != nil {
			return nil, err
		}
	}
	raw := make([]byte, d.Rows()*d.RowBytes())
	if err := d.ReadRows(ctx, 0, d.Rows(), raw); err != nil {
		return nil, err
	}
	out := make([]int64, length)
	for k := range out {
		one := raw[k*t.Size() : (k+1)*t.Size()]
		if out[k] = timestampNanos(t, one, unit.seconds, s.About.FPS); out[k] == noTime {
			if err := bad(robocache.Where{"index": k}, "a time",
				"NaN, infinity or a number beyond int64 nanoseconds"); err != nil {
				return nil, err
			}
		}
		if k > 0 && out[k] < out[k-1] {
			if err := bad(robocache.Where{"index": k},
				fmt.Sprintf("at least %d ns, the time of the row before", out[k-1]),
				fmt.Sprintf("%d ns", out[k])); err != nil {
				return nil, err
			}
		}
	}
	if err := robocache.At(unit.checkStep(out), robocache.Where{"pointer": d.Name()}); err != nil {
		return nil, err
	}
	return out, nil
}

// TimestampsAttribute is the attribute of the group "data" that contains the suffix of timestamps.
// TimestampsSuffix is the suffix that writers use.
const (
	TimestampsAttribute = "timestamps_suffix"
	TimestampsSuffix    = "_timestamps"
)

// clockRows is a clock in an episode: the address of its timestamps, and their number.
type clockRows struct {
	addr uint64
	rows int64
}

// rowsOfClock returns the number of rows of a stream's clock. Streams that share timestamps in the
// first episode must share them in all episodes.
func (s *Set) rowsOfClock(
	w *Walker,
	st *Stream,
	d *h5.Dataset,
	known map[string]clockRows,
) (int64, error) {
	path := st.times
	c, ok := known[st.Clock]
	if !ok && st.Clock == "" {
		path = s.rowTimes
	}
	if !ok {
		c.rows = d.Rows()
		if path != "" {
			object, err := w.Object(path)
			if err != nil {
				return 0, err
			}
			dataset, err := w.Dataset(path)
			if err != nil {
				return 0, err
			}
			c = clockRows{object.Address(), dataset.Rows()}
		}
		known[st.Clock] = c
	}
	isOtherClock := st.times != ""
	if isOtherClock {
		object, err := w.Object(st.times)
		if err != nil {
			return 0, err
		}
		isOtherClock = object.Address() != c.addr
	}
	if isOtherClock {
		return 0, robocache.Malformed(
			s.About.Format,
			robocache.Where{"pointer": w.pathInFile(st.times)},
			"",
		).
			Expected(
				"the timestamps that the stream shares with others in the first episode",
				"timestamps of its own",
			).
			WithHint("write the files again with one layout")
	}
	return c.rows, nil
}

// findRowTimes returns the path of the timestamps of the rows. These are the timestamps of the
// actions. Without actions, they are those of the first data set that is as long as the episode.
func (s *Set) findRowTimes(w *Walker, e *Episode) (path string, err error) {
	if s.Suffix == "" {
		return "", nil
	}
	for _, actions := range []string{"actions", "action"} {
		found, err := w.findDataset(actions)
		if err != nil {
			return path, err
		}
		if found == nil {
			continue
		}
		times, err := w.findDataset(actions + s.Suffix)
		if err != nil {
			return path, err
		}
		if times != nil {
			return actions + s.Suffix, nil
		}
	}
	if e.Acts {
		return "", nil
	}
	if err := w.Walk(func(p string, o *h5.Object) error {
		if _, err := Tolerate(func() error {
			if path != "" {
				return nil
			}
			found, err := w.findDataset(p + s.Suffix)
			if err != nil || found == nil {
				return err
			}
			dataset, err := o.Dataset(w.ctx, p)
			if err != nil {
				return err
			}
			if dataset.Rows() == int64(e.Length) {
				path = p + s.Suffix
			}
			return nil
		}); err != nil {
			return err
		}
		return nil
	}, nil); err != nil {
		return path, err
	}
	return path, nil
}

// findDataset returns the data set at a path, or nil if there is none.
func (w *Walker) findDataset(path string) (o *h5.Object, err error) {
	if _, err := Tolerate(func() error {
		var err error
		if o, err = w.Object(path); err != nil {
			return err
		}
		return nil
	}); err != nil {
		return o, err
	}
	if o != nil && !o.IsDataset() {
		return nil, nil
	}
	return o, nil
}

const noTime = math.MinInt64

// timestampNanos converts a stored number to nanoseconds. Integers are never converted to a float.
// A float32 that is a rounded row/rate becomes the exact time of that row.
func timestampNanos(t robocache.DType, raw []byte, unit float64, rate robocache.Rate) int64 {
	if t.Integer() {
		n := robocache.Int64s(nil, t, raw)[0]
		if t == robocache.Uint64 && n < 0 {
			return noTime
		}
		scale := int64(math.Round(unit * 1e9))
		if scale > 1 && (n > math.MaxInt64/scale || n < -math.MaxInt64/scale) {
			return noTime
		}
		return n * scale
	}
	v := robocache.Float64s(nil, t, raw)[0] * unit
	if f := float32(v); t == robocache.Float32 && unit == 1 && !rate.Zero() {
		row := math.Round(v * rate.Float())
		if math.Abs(row) < 1<<40 && f == float32(row/rate.Float()) {
			return rate.Nanos(int64(row))
		}
	}
	ns := math.RoundToEven(v * 1e9)
	if math.IsNaN(ns) || ns >= 1<<63 || ns <= -1<<63 {
		return noTime
	}
	return int64(ns)
}
