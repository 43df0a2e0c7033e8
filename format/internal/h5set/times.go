package h5set

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Rows is the number of a stream's rows in an episode.
func (s *Set) Rows(ctx context.Context, episode int, key string) (n int, err error) {
	defer guard.Recover(s.About.Format+" rows", &err)
	stream := s.get(key)
	guard.Check(s.op.Episode(len(s.Episodes), episode))
	return s.length(ctx, episode, stream), nil
}

// length is the number of rows of a stream in an episode; of the episode where it is -1.
func (s *Set) length(ctx context.Context, episode, stream int) int {
	if stream < 0 || s.Streams[stream].Clock == "" {
		return s.Episodes[episode].Length
	}
	return int(s.dataset(ctx, episode, stream).Rows())
}

// Times gives the timestamps of an episode's rows: those of the file where it holds some, else the rate's.
func (s *Set) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer guard.Recover(s.About.Format+" times", &err)
	guard.Check(s.op.Episode(len(s.Episodes), episode))
	stream := -1
	if key != "" {
		stream = s.get(key)
	}
	guard.Check(ctx.Err())
	e := &s.Episodes[episode]
	length := s.length(ctx, episode, stream)
	path := ""
	switch {
	case stream >= 0 && s.Streams[stream].Clock != "":
		path = s.Streams[stream].times
	case e.Times != "" || !s.hz:
		path = cmp.Or(e.Times, s.rowTimes)
	}
	if path != "" {
		return s.timestamps(ctx, e, path, length), nil
	}
	if s.About.FPS.Zero() {
		return nil, robocache.NoClock(s.About.Format, robocache.Where{"file": e.File.Name()}, "the file holds neither timestamps nor a rate")
	}
	return reader.Grid(s.About.FPS, length), nil
}

// timestamps reads timestamps that the file holds.
func (s *Set) timestamps(ctx context.Context, e *Episode, path string, length int) []int64 {
	defer guard.In("episode", e.Index)
	defer guard.In("file", e.File.Name())
	d := e.Walker(ctx).Dataset(path)
	bad := func(where robocache.Where, want, got string) {
		guard.Fail(robocache.At(&robocache.Error{Class: robocache.ErrMalformed, Op: s.About.Format, Where: robocache.Where{"pointer": d.Name()}, Want: want, Got: got}, where))
	}
	unit := s.units[path]
	guard.Check(unit.err)
	t, _ := elementOf(d)
	if !isTimes(d) || d.Rows() != int64(length) {
		bad(nil, fmt.Sprintf("%d timestamps", length), fmt.Sprintf("shape %v of %s", d.Shape, d.Type))
	}
	raw := make([]byte, d.Rows()*d.RowBytes())
	guard.Check(d.ReadRows(ctx, 0, d.Rows(), raw))
	out := make([]int64, length)
	for k := range out {
		if out[k] = timestamp(t, raw[k*t.Size():(k+1)*t.Size()], unit.seconds, s.About.FPS); out[k] == noTime {
			bad(robocache.Where{"index": k}, "a time", "NaN, infinity or a number beyond int64 nanoseconds")
		}
		if k > 0 && out[k] < out[k-1] {
			bad(robocache.Where{"index": k}, fmt.Sprintf("at least %d ns, the time of the row before", out[k-1]), fmt.Sprintf("%d ns", out[k]))
		}
	}
	guard.Check(robocache.At(unit.checkStep(out), robocache.Where{"pointer": d.Name()}))
	return out
}

// What writers say of timestamps: the attribute of data that names the ending, and that ending.
const (
	TimestampsAttribute = "timestamps_suffix"
	TimestampsSuffix    = "_timestamps"
)

// ticks is a clock in an episode: the address of its timestamps and their number.
type ticks struct {
	addr uint64
	rows int64
}

// ticks gives the rows of a stream's clock. Streams that shared timestamps in the first episode do so in all.
func (s *Set) ticks(w *Walker, st *Stream, d *h5.Dataset, known map[string]ticks) int64 {
	path := st.times
	c, ok := known[st.Clock]
	if !ok && st.Clock == "" {
		path = s.rowTimes
	}
	if !ok {
		c.rows = d.Rows()
		if path != "" {
			c = ticks{w.Object(path).Address(), w.Dataset(path).Rows()}
		}
		known[st.Clock] = c
	}
	if st.times != "" && w.Object(st.times).Address() != c.addr {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: s.About.Format, Where: robocache.Where{"pointer": w.at(st.times)},
			Want: "the timestamps that the stream shares with others in the first episode", Got: "timestamps of its own", Hint: "write the files again with one layout"})
	}
	return c.rows
}

// findRowTimes gives the timestamps of the rows: those of the actions, or where there are none of the first data set that is as long as the episode.
func (s *Set) findRowTimes(w *Walker, e *Episode) (path string) {
	if s.Suffix == "" {
		return ""
	}
	for _, actions := range []string{"actions", "action"} {
		if w.find(actions) != nil && w.find(actions+s.Suffix) != nil {
			return actions + s.Suffix
		}
	}
	if e.Acts {
		return ""
	}
	w.Walk(func(p string, o *h5.Object) {
		_ = Tolerate(func() {
			if path == "" && w.find(p+s.Suffix) != nil && guard.Must(o.Dataset(w.ctx, p)).Rows() == int64(e.Length) {
				path = p + s.Suffix
			}
		})
	}, nil)
	return path
}

// find gives the data set at a path; nil where there is none.
func (w *Walker) find(path string) (o *h5.Object) {
	_ = Tolerate(func() { o = w.Object(path) })
	if o != nil && !o.IsDataset() {
		return nil
	}
	return o
}

const noTime = math.MinInt64

// timestamp turns a stored number into nanoseconds. Integers never pass through a float. A float32 that is row/rate rounded is that time.
func timestamp(t robocache.DType, raw []byte, unit float64, rate robocache.Rate) int64 {
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
		if row := math.Round(v * rate.Float()); math.Abs(row) < 1<<40 && f == float32(row/rate.Float()) {
			return rate.Nanos(int64(row))
		}
	}
	ns := math.RoundToEven(v * 1e9)
	if math.IsNaN(ns) || ns >= 1<<63 || ns <= -1<<63 {
		return noTime
	}
	return int64(ns)
}
