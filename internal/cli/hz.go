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
	"github.com/goatnote-inc/robocache/mapping"
)

// source opens what convert reads, and settles the rate of the rows that are written. Told tells of a rate that was measured.
func (f *conversionFlags) source(ctx context.Context, open *openFlags, uri string, told func(string)) (robocache.Dataset, error) {
	opt, err := open.settled()
	if err != nil {
		return nil, err
	}
	hz, err := rateOf("--hz", open.hz)
	if err != nil {
		return nil, err
	}
	if !hz.Zero() && f.fps != "" {
		return nil, misuse("--hz says the rate to resample onto, --fps another name for the rate of the rows as they are: give one")
	}
	if f.opt.Align != nil && !f.opt.Align.HZ.Zero() && !hz.Zero() && f.opt.Align.HZ != hz {
		return nil, misuse(fmt.Sprintf("--hz says %s, hz of the --align file %s: give one", hz, f.opt.Align.HZ))
	}
	if f.opt.Align != nil && f.fps != "" {
		return nil, misuse("--fps gives rows another rate as they are, --align makes rows of a grid: its rate is hz in the file, or --hz")
	}
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil && (f.opt.FPS.Zero() || !opt.HZ.Zero() || !errors.Is(err, robocache.ErrNoClock)) {
		if err != nil {
			return nil, err
		}
		return nil, nil
	}
	if err != nil || hz.Zero() && !f.opt.FPS.Zero() && opt.HZ.Zero() && !robocache.KnowsTime(ctx, ds) {
		// --fps of rows that have no rate. A format may refuse to be opened without one.
		if err == nil {
			_ = ds.Close()
		}
		opt.HZ = f.opt.FPS
		if ds, err = mapping.Open(ctx, uri, opt); err != nil {
			return nil, err
		}
	}
	if f.forLeRobot {
		if ds, err = f.mapRoles(ctx, ds, uri, &opt, hz, told); err != nil {
			return nil, err
		}
	}
	err = func() error {
		parseEpisodes, err := ds.Info().ParseEpisodes(f.episode)
		if err != nil {
			return err
		}
		f.opt.Episodes = parseEpisodes
		return f.rated(ctx, ds, hz, told)
	}()
	if err != nil {
		_ = ds.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
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
		if ahead, err := a.LookAhead(ctx, ds, f.opt.Keys); err != nil {
			_ = ds.Close()
			return nil, err
		} else if ahead != nil {
			told(ahead.Message + ". " + ahead.Hint)
		}
	}
	return ds, nil
}

// mapRoles opens the source again with the mapping of --preset lerobot.
func (f *conversionFlags) mapRoles(ctx context.Context, ds robocache.Dataset, uri string, opt *robocache.OpenOptions, hz robocache.Rate, told func(string)) (robocache.Dataset, error) {
	defer ds.Close()
	if opt.Map != nil {
		return nil, misuse("--preset lerobot makes a mapping, and --map is one: give one of them")
	}
	steadyValue, err := steady(ctx, ds, f.opt.Episodes)
	if err != nil {
		return nil, err
	}
	for _, known := range []robocache.Rate{ds.Info().FPS, steadyValue} {
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
		return nil, robocache.Unsupported("convert", robocache.Where{"dataset": robocache.Redact(uri)}, "--preset lerobot finds no camera, no state and no action").
			WithHint("Name the streams with --map; inspect --suggest-map writes one to begin with.")
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
	return mapping.Open(ctx, uri, *opt)
}

// rated settles the rate of the rows of an open source.
func (f *conversionFlags) rated(ctx context.Context, ds robocache.Dataset, hz robocache.Rate, told func(string)) (err error) {
	switch info := ds.Info(); {
	case f.fps != "" && info.Clock != "":
		return misuse("--fps gives rows another rate as they are; the streams of this source have clocks of their own, and no rows: --hz says the rate of a grid for them")
	case hz.Zero():
		if err := f.measured(ctx, ds, told); err != nil {
			return err
		}
		return nil
	case f.opt.Align == nil && hz == info.FPS && info.Clock == "" && robocache.KnowsTime(ctx, ds):
		f.opt.FPS = hz // as they are
		return nil
	}
	if err := robocache.CheckGrid(ctx, ds, hz); err != nil {
		return err
	}
	if f.opt.Align == nil {
		f.opt.Align = &align.Config{}
	}
	f.opt.Align.HZ = hz
	return nil
}

// measured gives a recording whose streams have clocks of their own, and state no rate, that of its anchor, where that is steady.
func (f *conversionFlags) measured(ctx context.Context, ds robocache.Dataset, told func(string)) error {
	info := ds.Info()
	if info.Clock == "" || !info.FPS.Zero() || f.fps != "" || keepsClocks(f.to) || f.opt.Align != nil && !f.opt.Align.HZ.Zero() {
		return nil
	}
	hz, err := steady(ctx, ds, f.opt.Episodes)
	if err != nil {
		return err
	}
	if hz.Zero() {
		return nil // whoever needs a rate asks for it
	}
	if f.opt.Align == nil {
		f.opt.Align = &align.Config{}
	}
	f.opt.Align.HZ = hz
	told(fmt.Sprintf("rows at %s Hz: the measured rate of %s, whose clock is the recording's; --hz says another", hz, info.Clock))
	return nil
}

// steady measures the rate of a dataset's own rows: whole hertz that the median step of every episode that is looked at says, with nine in ten
// steps within a quarter of it. Zero where there is none.
func steady(ctx context.Context, ds robocache.Dataset, positions []int) (robocache.Rate, error) {
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
			return robocache.Rate{}, ctx.Err()
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
			return none, nil
		}
		if one := (robocache.Rate{Num: int64(rate), Den: 1}); hz.Zero() {
			hz = one
		} else if one != hz {
			return none, nil
		}
	}
	return hz, nil
}
