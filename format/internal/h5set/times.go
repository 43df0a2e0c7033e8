package h5set

import (
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Rows is the number of a stream's rows in an episode.
func (s *Set) Rows(ctx context.Context, episode int, key string) (n int, err error) {
	defer guard.Malformed(s.Info_.Format+" rows", &err)
	stream, err := s.get(key)
	if err != nil {
		return 0, err
	}
	if err := s.check(episode); err != nil {
		return 0, err
	}
	return s.length(ctx, episode, stream)
}

// length is the number of rows of a stream in an episode; of the episode where it is -1.
func (s *Set) length(ctx context.Context, episode, stream int) (int, error) {
	if stream < 0 || s.Streams[stream].Clock == "" {
		return s.Episodes[episode].Length, nil
	}
	d, err := s.dataset(ctx, episode, stream)
	if err != nil {
		return 0, err
	}
	return int(d.Rows()), nil
}

// Times gives the timestamps of an episode's rows: those of the file where it holds some, else the rate's.
func (s *Set) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer guard.Malformed(s.Info_.Format+" times", &err)
	if err := s.check(episode); err != nil {
		return nil, err
	}
	stream := -1
	if key != "" {
		if stream, err = s.get(key); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e := &s.Episodes[episode]
	length, err := s.length(ctx, episode, stream)
	if err != nil {
		return nil, err
	}
	if e.Times != "" && (stream < 0 || s.Streams[stream].Clock == "") {
		return s.timestamps(ctx, episode)
	}
	rate := s.Info_.FPS
	if rate.Zero() {
		return nil, robocache.NoClock(s.Info_.Format, robocache.Where{"file": e.File.Name()}, "the file holds neither timestamps nor a rate")
	}
	out = make([]int64, length)
	for k := range out {
		out[k] = rate.Nanos(int64(k))
	}
	return out, nil
}

// timestamps reads the timestamps that the file holds.
func (s *Set) timestamps(ctx context.Context, episode int) ([]int64, error) {
	e := &s.Episodes[episode]
	w, err := e.Walker(ctx)
	if err != nil {
		return nil, err
	}
	d, err := w.Dataset(ctx, e.Times)
	if err != nil {
		return nil, robocache.At(err, s.where(episode, ""))
	}
	bad := func(row int, want, got string) error {
		wh := s.where(episode, "")
		wh["pointer"] = d.Name()
		if row >= 0 {
			wh["index"] = row
		}
		return &robocache.Error{Class: robocache.ErrMalformed, Op: s.Info_.Format, Where: wh, Want: want, Got: got}
	}
	t, dims := elementOf(d)
	if t.Size() == 0 || d.Rows() != int64(e.Length) || len(dims) > 1 || len(dims) == 1 && dims[0] != 1 {
		return nil, bad(-1, fmt.Sprintf("%d timestamps", e.Length), fmt.Sprintf("shape %v of %s", d.Shape, d.Type))
	}
	raw := make([]byte, d.Rows()*d.RowBytes())
	if err := d.ReadRows(ctx, 0, d.Rows(), raw); err != nil {
		return nil, robocache.At(err, s.where(episode, ""))
	}
	out := make([]int64, e.Length)
	for k := range out {
		if out[k] = timestamp(t, raw[k*t.Size():(k+1)*t.Size()], s.TimestampUnit, s.Info_.FPS); out[k] == noTime {
			return nil, bad(k, "a time", "NaN, infinity or a number beyond int64 nanoseconds")
		}
		if k > 0 && out[k] < out[k-1] {
			return nil, bad(k, fmt.Sprintf("at least %d ns, the time of the row before", out[k-1]), fmt.Sprintf("%d ns", out[k]))
		}
	}
	return out, nil
}

const noTime = math.MinInt64

// timestamp turns a stored number into nanoseconds. Integers never pass through a float. A float32 that is row/rate rounded is that time.
func timestamp(t robocache.DType, raw []byte, unit float64, rate robocache.Rate) int64 {
	if t.Integer() {
		var v uint64
		for i := len(raw) - 1; i >= 0; i-- {
			v = v<<8 | uint64(raw[i])
		}
		n := int64(v)
		if t <= robocache.Int64 {
			shift := 64 - 8*len(raw)
			n = n << shift >> shift
		} else if n < 0 {
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
