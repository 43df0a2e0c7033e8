package zarr

import (
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// units are nanoseconds.
var units = map[string]int64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// findClock settles where timestamps come from (A5).
func (d *Dataset) findClock(ctx context.Context, unit string) {
	v := d.views["timestamp"]
	if v == nil || v.f.Kind != robocache.KindNumeric || v.f.Elements() != 1 || v.f.Clock != "" || v.a.err != nil || v.f.DType == robocache.Bool {
		d.info.FPS = d.rate // none: asking for timestamps is an error that says so
		return
	}
	if own, ok := v.a.Attrs["unit"].(string); ok && unit == "" && units[own] != 0 {
		unit = own
	}
	if unit == "" {
		if unit = "s"; !v.f.DType.Float() {
			unit = "ns"
		}
	}
	d.timestamps, d.unit = v, units[unit]
	v.f.Unit = unit
	if v.f.DType == robocache.Float32 {
		d.find(robocache.Finding{Severity: robocache.SeverityWarning, Code: "coarse-timestamps", Where: robocache.Where{"stream": "timestamp"}, Message: "timestamps kept as float32: after a day they are a hundredth of a second apart"})
	}
	if d.rate.Zero() {
		d.guessRate(ctx)
	}
	d.info.FPS = d.rate
	for i := range d.info.Features {
		d.info.Features[i].FPS = d.rate
	}
}

// guessRate says a rate where the first episode's timestamps are steady; it is for people, timestamps stay what they are.
func (d *Dataset) guessRate(ctx context.Context) {
	for e := range min(len(d.ends)-1, 16) {
		n := min(d.Len(e), 1000)
		if n < 3 {
			continue
		}
		t := d.timestampsOf(ctx, e, n)
		hz := float64(n-1) / (float64(t[n-1]-t[0]) / 1e9)
		if r := math.Round(hz); r >= 1 && math.Abs(hz-r)/r < 0.01 {
			d.rate = robocache.Rate{Num: int64(r), Den: 1}
		}
		return
	}
}

// timestampsOf reads the first n timestamps of an episode.
func (d *Dataset) timestampsOf(ctx context.Context, episode, n int) []int64 {
	defer guard.In("stream", "timestamp")
	defer guard.In("episode", episode)
	a := d.timestamps.a
	if int64(a.Shape[0]) < d.ends[episode]+int64(n) {
		bad("the timestamps end before the episode")
	}
	rows := make([]int, n)
	for i := range rows {
		rows[i] = int(d.ends[episode]) + i
	}
	b := make([]byte, n*a.Type.Size)
	d.gather(ctx, a, rows, b)
	out := make([]int64, n)
	wrong := func(i int, got any) {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "zarr times", Where: robocache.Where{"row": i}, Want: "a time of 64 bits of nanoseconds", Got: fmt.Sprint(got)})
	}
	if a.Type.DType().Float() {
		for i, f := range robocache.Float64s(nil, a.Type.DType(), b) {
			// Whole units apart from the rest: the product of an epoch in seconds and 1e9 would round.
			whole, rest := math.Modf(f)
			if math.IsNaN(f) || math.Abs(whole) > float64(math.MaxInt64/d.unit-1) {
				wrong(i, f)
			}
			out[i] = int64(whole)*d.unit + int64(math.RoundToEven(rest*float64(d.unit)))
		}
		return out
	}
	for i, t := range robocache.Int64s(nil, a.Type.DType(), b) {
		if t > math.MaxInt64/d.unit || t < math.MinInt64/d.unit || t < 0 && a.Type.Kind == 'u' {
			wrong(i, t)
		}
		out[i] = t * d.unit
	}
	return out
}

// Times gives the timestamps of a stream's rows in an episode.
func (d *Dataset) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer guard.Malformed("zarr times", &err)
	guard.Check(op.Episode(len(d.ends)-1, episode))
	var v *view
	if key != "" {
		if v = d.views[key]; v == nil && d.cameras.cams[key] == nil {
			return nil, op.NoStream(key)
		}
	}
	n := d.length(v, episode)
	if d.timestamps != nil && (v == nil || v.f.Clock == "") {
		return d.timestampsOf(ctx, episode, n), nil
	}
	// The length is metadata's claim; rows are never more than 2^31 (describe, readEnds), and their timestamps 16 GiB: not without their data.
	if v == nil || v.a.Shape[0] < n {
		for _, other := range d.views {
			if other.f.Clock == "" && int64(other.a.Shape[0]) >= d.ends[episode]+int64(n) {
				v = other
				break
			}
		}
		if v == nil {
			return nil, robocache.At(malformed("no array reaches the episode's end"), robocache.Where{"episode": episode})
		}
	}
	if n > 1<<26 {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "zarr times", Where: robocache.Where{"episode": episode}, Want: fmt.Sprintf("at most %d rows without a clock", 1<<26), Got: fmt.Sprint(n)}
	}
	rate := d.rate
	if rate.Zero() {
		return nil, robocache.NoClock("zarr times", robocache.Where{"stream": key}, "neither data/timestamp nor an attribute fps is there")
	}
	return reader.Grid(rate, n), ctx.Err()
}
