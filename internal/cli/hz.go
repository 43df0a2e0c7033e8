package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/mapping"
)

// source opens what convert reads, and settles the rate of the rows that are written. Told tells of a rate that was measured.
func (f *conversionFlags) source(ctx context.Context, open *openFlags, uri string, told func(string)) robocache.Dataset {
	opt := open.settled()
	hz := rateOf("--hz", open.hz)
	if !hz.Zero() && f.fps != "" {
		guard.Fail(misuse("--hz says the rate to resample onto, --fps another name for the rate of the rows as they are: give one"))
	}
	if f.opt.Align != nil && !f.opt.Align.HZ.Zero() && !hz.Zero() && f.opt.Align.HZ != hz {
		guard.Fail(misuse(fmt.Sprintf("--hz says %s, hz of the --align file %s: give one", hz, f.opt.Align.HZ)))
	}
	if f.opt.Align != nil && f.fps != "" {
		guard.Fail(misuse("--fps gives rows another rate as they are, --align makes rows of a grid: its rate is hz in the file, or --hz"))
	}
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil && (f.opt.FPS.Zero() || !opt.HZ.Zero() || !errors.Is(err, robocache.ErrNoClock)) {
		guard.Check(err)
		return nil
	}
	if err != nil || hz.Zero() && !f.opt.FPS.Zero() && opt.HZ.Zero() && !robocache.KnowsTime(ctx, ds) {
		// --fps of rows that have no rate. A format may refuse to be opened without one.
		if err == nil {
			_ = ds.Close()
		}
		opt.HZ = f.opt.FPS
		ds = guard.Must(mapping.Open(ctx, uri, opt))
	}
	if f.forLeRobot {
		ds = f.mapRoles(ctx, ds, uri, &opt, hz, told)
	}
	err = guard.Try(func() {
		f.opt.Episodes = guard.Must(ds.Info().ParseEpisodes(f.episode))
		guard.Check(f.rated(ctx, ds, hz, told))
	})
	if err != nil {
		_ = ds.Close()
		guard.Fail(robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)}))
	}
	if f.forLeRobot && f.opt.Align != nil && f.opt.Align.DTypes == nil {
		f.opt.Align.DTypes = map[string]robocache.DType{}
		for _, g := range ds.Info().Features {
			if g.Kind == robocache.KindNumeric && g.DType == robocache.Float64 {
				f.opt.Align.DTypes[g.Key] = robocache.Float32 // the type of lerobot's policies
			}
		}
	}
	f.opened = opt
	if a := f.opt.Align; a != nil {
		for _, note := range a.RelativeNotes(ds.Info(), f.opt.Keys) {
			told(note.Message + ". " + note.Hint)
		}
		if ahead := a.LookAhead(ctx, ds, f.opt.Keys); ahead != nil {
			told(ahead.Message + ". " + ahead.Hint)
		}
	}
	return ds
}

// mapRoles opens the source again with the mapping of --preset lerobot.
func (f *conversionFlags) mapRoles(ctx context.Context, ds robocache.Dataset, uri string, opt *robocache.OpenOptions, hz robocache.Rate, told func(string)) robocache.Dataset {
	defer ds.Close()
	if opt.Map != nil {
		guard.Fail(misuse("--preset lerobot makes a mapping, and --map is one: give one of them"))
	}
	for _, known := range []robocache.Rate{ds.Info().FPS, steady(ctx, ds, f.opt.Episodes)} {
		if hz.Zero() {
			hz = known
		}
	}
	var period int64
	if !hz.Zero() {
		period = hz.Nanos(1)
	}
	m, left := mapping.Preset(ds.Info(), period)
	if len(m.Streams) == 0 {
		guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "convert", Where: robocache.Where{"dataset": robocache.Redact(uri)}, Msg: "--preset lerobot finds no camera, no state and no action", Hint: "Name the streams with --map; inspect --suggest-map writes one to begin with."})
	}
	for _, key := range slices.Sorted(maps.Keys(m.Streams)) {
		s := m.Streams[key]
		if text := strings.Join(s.From, ", "); s.Offset != 0 {
			told(fmt.Sprintf("preset lerobot: %s is %s one row later: the recording has no stream of commands", key, text))
		} else if text != key {
			told(fmt.Sprintf("preset lerobot: %s is %s", key, text))
		}
	}
	if len(left) > 0 {
		told("preset lerobot: dropped " + strings.Join(left, ", "))
	}
	opt.Map = m
	return guard.Must(mapping.Open(ctx, uri, *opt))
}

// rated settles the rate of the rows of an open source.
func (f *conversionFlags) rated(ctx context.Context, ds robocache.Dataset, hz robocache.Rate, told func(string)) (err error) {
	defer guard.Into(&err)
	switch info := ds.Info(); {
	case f.fps != "" && info.Clock != "":
		return misuse("--fps gives rows another rate as they are; the streams of this source have clocks of their own, and no rows: --hz says the rate of a grid for them")
	case hz.Zero():
		f.measured(ctx, ds, told)
		return nil
	case f.opt.Align == nil && hz == info.FPS && info.Clock == "" && robocache.KnowsTime(ctx, ds):
		f.opt.FPS = hz // as they are
		return nil
	}
	guard.Check(robocache.CheckGrid(ctx, ds, hz))
	if f.opt.Align == nil {
		f.opt.Align = &align.Config{}
	}
	f.opt.Align.HZ = hz
	return nil
}

// measured gives a recording whose streams have clocks of their own, and state no rate, that of its anchor, where that is steady.
func (f *conversionFlags) measured(ctx context.Context, ds robocache.Dataset, told func(string)) {
	info := ds.Info()
	if info.Clock == "" || !info.FPS.Zero() || f.fps != "" || keepsClocks(f.to) || f.opt.Align != nil && !f.opt.Align.HZ.Zero() {
		return
	}
	hz := steady(ctx, ds, f.opt.Episodes)
	if hz.Zero() {
		return // whoever needs a rate asks for it
	}
	if f.opt.Align == nil {
		f.opt.Align = &align.Config{}
	}
	f.opt.Align.HZ = hz
	told(fmt.Sprintf("rows at %s Hz: the measured rate of %s, whose clock is the recording's; --hz says another", hz, info.Clock))
}

// steady measures the rate of a dataset's own rows: whole hertz that the median step of every episode that is looked at says, with nine in ten
// steps within a quarter of it. Zero where there is none.
func steady(ctx context.Context, ds robocache.Dataset, positions []int) robocache.Rate {
	if positions == nil {
		for e := range ds.Info().Episodes {
			positions = append(positions, e)
		}
	}
	var none, hz robocache.Rate
	looked := 0
	for _, e := range positions {
		if looked == 8 {
			break
		}
		t, err := ds.Times(ctx, e, "")
		if ctx.Err() != nil {
			guard.Fail(ctx.Err())
		}
		if err != nil || len(t) < 10 {
			continue // who reads it says what is wrong
		}
		looked++
		steps := make([]float64, len(t)-1)
		for i := range steps {
			steps[i] = float64(t[i+1] - t[i])
		}
		sorted := slices.Clone(steps)
		slices.Sort(sorted)
		middle := sorted[len(sorted)/2]
		even := 0
		for _, s := range steps {
			if math.Abs(s-middle) <= middle/4 {
				even++
			}
		}
		rate := math.Round(1e9 / middle)
		if !(middle > 0) || rate < 1 || math.Abs(1e9/middle-rate) > 0.01*rate || even*10 < len(steps)*9 {
			return none
		}
		if one := (robocache.Rate{Num: int64(rate), Den: 1}); hz.Zero() {
			hz = one
		} else if one != hz {
			return none
		}
	}
	return hz
}
