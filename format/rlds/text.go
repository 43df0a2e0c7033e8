package rlds

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Text returns texts of steps, or a text of the episode for each step. "task" is the episode's
// task, for which no record is read.
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer guard.Recover("rlds text", &err)
	if _, own := d.byKey[key]; key == "task" && !own {
		out = make([]string, len(rows))
		for i, r := range rows {
			guard.Check(d.checkRow(r))
			out[i] = d.taskOf(d.locateEpisode(r.Episode))
		}
		return out, nil
	}
	l, s, f := d.leafOf(key, robocache.KindText, robocache.KindEvent)
	out = make([]string, len(rows))
	d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) {
		spans := rec.lists[l.slot].spans
		if f.Kind == robocache.KindText {
			last, at := "", -1
			for _, i := range which {
				if l.isAbsent(rec) {
					break
				}
				sp := spans[l.rowOf(rows[i].Index)]
				// Instructions repeat from step to step, so they share one string.
				if b := rec.data[sp.from:sp.to]; at < 0 || last != string(b) {
					last, at = string(b), i
					out[i] = cleanText(b)
				} else {
					out[i] = out[at]
				}
			}
			return
		}
		c := d.columnOf(rec, s.leaf, episode)
		for _, i := range which {
			k := int64(l.rowOf(rows[i].Index))
			from, to := k, k+1
			if c.starts != nil {
				from, to = c.starts[k], c.starts[k+1]
			}
			texts := []string{}
			for _, sp := range spans[from*int64(l.elements()) : to*int64(l.elements())] {
				texts = append(texts, cleanText(rec.data[sp.from:sp.to]))
			}
			out[i] = string(guard.Must(json.Marshal(texts)))
		}
	})
	return out, nil
}

// clock is the source of the timestamps of steps: a rate, or a stream.
type clock struct {
	rate       robocache.Rate
	key        string
	leaf       int
	scale      float64 // nanoseconds per unit
	unitStated bool    // the caller stated the unit
}

var units = map[string]float64{"": 1e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// chooseClock chooses the rate or the stream of timestamps, because RLDS has no clock.
func (d *Dataset) chooseClock(
	ctx context.Context,
	opt robocache.OpenOptions,
	options map[string]string,
	own ownMetadata,
) {
	key, unit := options["timestamps"], options["timestamp_unit"]
	if opt.Map != nil && key == "" {
		for _, m := range opt.Map.Streams {
			if k, ok := strings.CutPrefix(m.Clock, "timestamps:"); ok && k != "" {
				if key != "" && key != k {
					guard.Fail(robocache.Misuse(
						"rlds",
						robocache.Where{"stream": k},
						"the mapping names two streams of timestamps, but steps have one time",
					))
				}
				key, unit = k, m.TimestampUnit
			}
		}
	}
	rate := opt.HZ
	if rate.Zero() && opt.Map != nil {
		rate = opt.Map.HZ
	}
	if key == "" && rate.Zero() && own.Robocache != nil {
		rate = own.Robocache.FPS
		if !own.Robocache.Regular && own.Robocache.Timestamps != "" {
			key, unit = own.Robocache.Timestamps, "ns"
		}
	}
	if rate.Zero() {
		rate, _ = rateOf(d.info.Name)
	}
	d.clock = clock{rate: rate, leaf: -1}
	d.About.FPS = rate
	if key == "" {
		return
	}
	scale, ok := units[unit]
	if !ok {
		guard.Fail(robocache.Misuse("rlds", robocache.Where{"option": "timestamp_unit"}, "").
			Expected("s, ms, us or ns", quoteClipped(unit)))
	}
	for i := range d.schema.leaves {
		l := &d.schema.leaves[i]
		if l.key == key && l.unsupported == "" && l.step && l.coding == plain && !l.varies &&
			l.elements() == 1 &&
			!l.optional &&
			l.dtype != robocache.Bool {
			d.clock.key, d.clock.leaf, d.clock.scale, d.clock.unitStated = key, i, scale, unit != ""
			return
		}
	}
	guard.Fail(robocache.Misuse("rlds", robocache.Where{"stream": key}, "").
		Expected("a stream with the time of each step as one number", "none of this name"))
}

// noClock returns the error about a dataset without timestamps and rate.
func (d *Dataset) noClock() error {
	err := d.About.NoClock(
		"rlds",
		robocache.Where{"file": infoName},
		"RLDS keeps no timestamps, and the rate of "+quoteClipped(d.info.Name)+" is unknown",
	)
	if d.About.UnusedClocks != nil {
		return err
	}
	err.Hint += ", or name the stream that holds their times (" +
		robocache.Option("options", "timestamps", "observation.timestamp") +
		`, or clock: "timestamps:…" in a mapping)`
	return err
}

// Times returns the timestamps of an episode's steps. All streams share them.
func (d *Dataset) Times(ctx context.Context, episode int, key string) (out []int64, err error) {
	defer guard.Recover("rlds times", &err)
	if key != "" {
		d.leafOf(key)
	}
	guard.Check(op.Episode(d.About.Episodes, episode))
	if d.clock.leaf < 0 && d.clock.rate.Zero() {
		return nil, d.noClock()
	}
	if d.clock.leaf < 0 {
		return reader.Grid(d.clock.rate, d.Len(episode)), nil
	}
	return d.readTimes(ctx, episode), nil
}

// checkSeconds rejects times that are not seconds, or that may be in another unit.
func (d *Dataset) checkSeconds(rows []byte, dtype robocache.DType) error {
	usual := "s"
	if !dtype.Float() {
		usual = ""
	}
	g, err := robocache.InferTimeUnit(robocache.Float64s(nil, dtype, rows), usual, d.clock.rate)
	if err == nil && g.Unit != "" && g.Unit != "s" {
		err = robocache.Misuse("rlds", nil, "the times are not seconds: %s", g.Why).
			WithHint("Pass %s", robocache.Option("options", "timestamp_unit", g.Unit))
	}
	return err
}

// readTimes reads the times of the steps.
func (d *Dataset) readTimes(ctx context.Context, episode int) []int64 {
	rec := d.loadValues(ctx, episode)
	l := &d.schema.leaves[d.clock.leaf]
	c := d.columnOf(rec, d.clock.leaf, episode)
	if !d.clock.unitStated {
		guard.Check(robocache.At(
			d.checkSeconds(c.rows, l.dtype),
			robocache.Where{"episode": d.About.EpisodeIndex(episode), "stream": d.clock.key},
		))
	}
	out := make([]int64, rec.steps)
	exact := l.dtype == robocache.Int64 && d.clock.scale == 1
	if exact {
		out = robocache.Int64s(out[:0], l.dtype, c.rows)
	}
	for i, v := range robocache.Float64s(nil, l.dtype, c.rows) {
		if ns := v * d.clock.scale; !exact && !(ns > -(1<<63) && ns < 1<<63) {
			guard.Fail(robocache.Malformed(
				"rlds",
				robocache.Where{
					"episode": d.About.EpisodeIndex(episode),
					"stream":  d.clock.key,
					"index":   i,
				},
				"",
			).Expected("a time", fmt.Sprint(v)))
		} else if !exact {
			out[i] = int64(math.RoundToEven(ns))
		}
		if i > 0 && out[i] < out[i-1] {
			guard.Fail(
				robocache.Malformed(
					"rlds",
					robocache.Where{
						"episode": d.About.EpisodeIndex(episode),
						"stream":  d.clock.key,
						"index":   i,
					},
					"",
				).Expected(
					fmt.Sprintf("at least %d ns, the time of the step before", out[i-1]),
					fmt.Sprintf("%d ns", out[i]),
				),
			)
		}
	}
	return out
}
