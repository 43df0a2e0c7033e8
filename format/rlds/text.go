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

// Text gives texts: of a step its own, of the episode the same for each step; "task" is the
// episode's task, which needs no reading.
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
			out[i] = d.task(d.place(r.Episode))
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
				if l.absent(rec) {
					break
				}
				sp := spans[l.row(rows[i].Index)]
				// Instructions repeat from step to step: one string serves them all.
				if b := rec.data[sp.from:sp.to]; at < 0 || last != string(b) {
					last, at = string(b), i
					out[i] = cleanText(b)
				} else {
					out[i] = out[at]
				}
			}
			return
		}
		c := d.column(rec, s.leaf, episode)
		for _, i := range which {
			k := int64(l.row(rows[i].Index))
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

// clock is where the timestamps of steps come from: a rate, or a stream that holds them.
type clock struct {
	rate  robocache.Rate
	key   string
	leaf  int
	scale float64 // nanoseconds a unit
	told  bool    // the caller states the unit
}

var units = map[string]float64{"": 1e9, "s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// chooseClock settles the rate or the stream of timestamps. RLDS keeps no clock.
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
					guard.Fail(
						robocache.Misuse(
							"rlds",
							robocache.Where{"stream": k},
							"steps have one time: the mapping names two streams of timestamps",
						),
					)
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
		rate, _ = rateOf(d.raw.Name)
	}
	d.clock = clock{rate: rate, leaf: -1}
	d.About.FPS = rate
	if key == "" {
		return
	}
	scale, ok := units[unit]
	if !ok {
		guard.Fail(robocache.Misuse("rlds", robocache.Where{"option": "timestamp_unit"}, "").
			Expected("s, ms, us or ns", clip(unit)))
	}
	for i := range d.s.leaves {
		l := &d.s.leaves[i]
		if l.key == key && l.what == "" && l.step && l.coding == plain && !l.varies &&
			l.elements() == 1 &&
			!l.optional &&
			l.dtype != robocache.Bool {
			d.clock.key, d.clock.leaf, d.clock.scale, d.clock.told = key, i, scale, unit != ""
			return
		}
	}
	guard.Fail(robocache.Misuse("rlds", robocache.Where{"stream": key}, "").
		Expected("a stream of one number a step that holds its time", "none of this name"))
}

func (d *Dataset) noClock() error {
	err := d.About.NoClock(
		"rlds",
		robocache.Where{"file": infoName},
		"RLDS keeps no timestamps, and the rate of "+clip(d.raw.Name)+" is not known",
	)
	if d.About.UnusedClocks != nil {
		return err
	}
	err.Hint += ", or name the stream that holds their times (" + robocache.Option(
		"options",
		"timestamps",
		"observation.timestamp",
	) +
		`, or clock: "timestamps:…" in a mapping)`
	return err
}

// Times gives the timestamps of an episode's steps: every stream has them.
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
	return d.timestamps(ctx, episode), nil
}

// checkSeconds rejects times that are not seconds, or may be another unit.
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

// timestamps reads the times of the steps.
func (d *Dataset) timestamps(ctx context.Context, episode int) []int64 {
	rec := d.values(ctx, episode)
	l := &d.s.leaves[d.clock.leaf]
	c := d.column(rec, d.clock.leaf, episode)
	if !d.clock.told {
		guard.Check(
			robocache.At(
				d.checkSeconds(c.rows, l.dtype),
				robocache.Where{"episode": d.About.EpisodeIndex(episode), "stream": d.clock.key},
			),
		)
	}
	out := make([]int64, rec.steps)
	exact := l.dtype == robocache.Int64 && d.clock.scale == 1
	if exact {
		out = robocache.Int64s(out[:0], l.dtype, c.rows)
	}
	for i, v := range robocache.Float64s(nil, l.dtype, c.rows) {
		if ns := v * d.clock.scale; !exact && !(ns > -(1<<63) && ns < 1<<63) {
			guard.Fail(
				robocache.Malformed("rlds", robocache.Where{"episode": d.About.EpisodeIndex(episode), "stream": d.clock.key, "index": i}, "").
					Expected("a time", fmt.Sprint(v)),
			)
		} else if !exact {
			out[i] = int64(math.RoundToEven(ns))
		}
		if i > 0 && out[i] < out[i-1] {
			guard.Fail(
				robocache.Malformed("rlds", robocache.Where{"episode": d.About.EpisodeIndex(episode), "stream": d.clock.key, "index": i}, "").
					Expected(fmt.Sprintf("at least %d ns, the time of the step before", out[i-1]), fmt.Sprintf("%d ns", out[i])),
			)
		}
	}
	return out
}
