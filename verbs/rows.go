package verbs

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

// open opens the source of the conversion, and settles the rate of the rows that are written. The
// caller must close the dataset.
func (c *conversion) open(ctx context.Context, uri string) (robocache.Dataset, error) {
	opt, err := c.Options()
	if err != nil {
		return nil, err
	}
	hz, err := ParseRate("hz", c.HZ)
	if err != nil {
		return nil, err
	}
	if err := c.checkRates(hz); err != nil {
		return nil, err
	}
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil && (c.opt.FPS.Zero() || !opt.HZ.Zero() || !errors.Is(err, robocache.ErrNoClock)) {
		return nil, err
	}
	hasNoRate := func() bool {
		return hz.Zero() && !c.opt.FPS.Zero() && opt.HZ.Zero() && !robocache.KnowsTime(ctx, ds)
	}
	if err != nil || hasNoRate() {
		// fps is of rows that have no rate. A format may refuse to be opened without one.
		if err == nil {
			_ = ds.Close()
		}
		opt.HZ = c.opt.FPS
		if ds, err = mapping.Open(ctx, uri, opt); err != nil {
			return nil, err
		}
	}
	if c.forLeRobot {
		if ds, err = c.mapRoles(ctx, ds, uri, &opt, hz); err != nil {
			return nil, err
		}
	}
	c.opened = opt
	if c.opt.Episodes, err = ds.Info().ParseEpisodes(c.Episodes); err == nil {
		err = c.settleRate(ctx, ds, hz)
	}
	if err != nil {
		_ = ds.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	if err := c.settleAlignment(ctx, ds); err != nil {
		_ = ds.Close()
		return nil, err
	}
	return ds, nil
}

// checkRates rejects options that give the rows two rates.
func (c *conversion) checkRates(hz robocache.Rate) error {
	name, a := optionName, c.opt.Align
	switch {
	case !hz.Zero() && c.FPS != "":
		return misuse(
			"%s says the rate to resample onto, %s another name for the rate of the rows as "+
				"they are: give one",
			name("hz"),
			name("fps"),
		)
	case a != nil && !a.HZ.Zero() && !hz.Zero() && a.HZ != hz:
		return misuse("%s says %s, hz of the %s file %s: give one",
			name("hz"), hz, name("align"), a.HZ)
	case a != nil && c.FPS != "":
		return misuse(
			"%s gives rows another rate as they are, %s makes rows of a grid: its rate is hz in "+
				"the file, or %s",
			name("fps"),
			name("align"),
			name("hz"),
		)
	}
	return nil
}

// settleAlignment completes the alignment, if there is one, and notes its effects on the rows.
func (c *conversion) settleAlignment(ctx context.Context, ds robocache.Dataset) error {
	a := c.opt.Align
	if a == nil {
		return nil
	}
	if c.forLeRobot && a.DTypes == nil {
		a.DTypes = map[string]robocache.DType{}
		for _, g := range ds.Info().Features {
			if g.Kind == robocache.KindNumeric && g.DType == robocache.Float64 {
				a.DTypes[g.Key] = robocache.Float32 // the type of lerobot's policies
			}
		}
	}
	for _, f := range a.RelativeNotes(ds.Info(), c.opt.Keys) {
		c.note(f.Message + ". " + f.Hint)
	}
	ahead, err := a.LookAhead(ctx, ds, c.opt.Keys)
	if err != nil {
		return err
	}
	if ahead != nil {
		c.note(ahead.Message + ". " + ahead.Hint)
	}
	return nil
}

// mapRoles opens the source again with the mapping of the preset lerobot. It closes ds.
func (c *conversion) mapRoles(
	ctx context.Context, ds robocache.Dataset, uri string,
	opt *robocache.OpenOptions, hz robocache.Rate,
) (robocache.Dataset, error) {
	defer ds.Close()
	preset := robocache.Option("preset", PresetLeRobot)
	if opt.Map != nil {
		return nil, misuse("%s makes a mapping, and %s is one: give one of them",
			preset, optionName("map"))
	}
	steady, err := steadyRate(ctx, ds, c.opt.Episodes)
	if err != nil {
		return nil, err
	}
	for _, known := range []robocache.Rate{ds.Info().FPS, steady} {
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
		where := robocache.Where{"dataset": robocache.Redact(uri)}
		return nil, robocache.Unsupported("convert", where,
			"%s finds no camera, no state and no action", preset).
			WithHint("Name the streams with %s; %s writes one to begin with.",
				robocache.Option("map"), robocache.Command("inspect --suggest-map"))
	}
	for _, key := range slices.Sorted(maps.Keys(m.Streams)) {
		s := m.Streams[key]
		if text := strings.Join(s.From, ", "); s.Offset != 0 {
			c.note(fmt.Sprintf("preset lerobot: %s is %s one row later: "+
				"the recording has no stream of commands", key, text))
		} else if text != key {
			c.note(fmt.Sprintf("preset lerobot: %s is %s", key, text))
		}
	}
	if len(left) > 0 {
		c.note("preset lerobot: dropped " + strings.Join(left, ", "))
	}
	opt.Map = m
	return mapping.Open(ctx, uri, *opt)
}

// settleRate settles the rate of the rows of an open source.
func (c *conversion) settleRate(
	ctx context.Context, ds robocache.Dataset, hz robocache.Rate,
) error {
	info := ds.Info()
	isGrid := c.opt.Align != nil
	switch {
	case c.FPS != "" && info.Clock != "":
		return misuse("%s gives rows another rate as they are; the streams of this source have "+
			"clocks of their own, and no rows: %s says the rate of a grid for them",
			optionName("fps"), optionName("hz"))
	case hz.Zero():
		return c.measureRate(ctx, ds)
	case !isGrid && hz == info.FPS && info.Clock == "" && robocache.KnowsTime(ctx, ds):
		c.opt.FPS = hz // as they are
		return nil
	}
	if err := robocache.CheckGrid(ctx, ds, hz); err != nil {
		return err
	}
	c.setGrid(hz)
	return nil
}

// setGrid aligns the rows on a grid of a rate.
func (c *conversion) setGrid(hz robocache.Rate) {
	if c.opt.Align == nil {
		c.opt.Align = &align.Config{}
	}
	c.opt.Align.HZ = hz
}

// measureRate sets the rate of the grid to that of the anchor, if it is steady. It does so for
// recordings whose streams have clocks of their own and declare no rate.
func (c *conversion) measureRate(ctx context.Context, ds robocache.Dataset) error {
	info := ds.Info()
	if info.Clock == "" || !info.FPS.Zero() || c.FPS != "" || keepsClocks(c.to) ||
		c.opt.Align != nil && !c.opt.Align.HZ.Zero() {
		return nil
	}
	hz, err := steadyRate(ctx, ds, c.opt.Episodes)
	if err != nil || hz.Zero() {
		return err // a writer that needs a rate asks for it
	}
	c.setGrid(hz)
	c.note(fmt.Sprintf("rows at %s Hz: the measured rate of %s, whose clock is the recording's; "+
		"%s says another", hz, info.Clock, optionName("hz")))
	return nil
}

// keepsClocks reports whether streams of a format may have clocks of their own.
func keepsClocks(format string) bool {
	f, err := robocache.FormatNamed(format)
	return err == nil && f.Clocks
}

// measuredEpisodes is the number of episodes whose steps steadyRate measures.
const measuredEpisodes = 8

// steadyRate measures the rate of a dataset's own rows. It returns the whole hertz of the median
// step if nine in ten steps of each measured episode are within a quarter of it, else zero.
func steadyRate(
	ctx context.Context, ds robocache.Dataset, positions []int,
) (robocache.Rate, error) {
	if positions == nil {
		for e := range ds.Info().Episodes {
			positions = append(positions, e)
		}
	}
	var none, steady robocache.Rate
	measured := 0
	for _, e := range positions {
		if measured == measuredEpisodes {
			break
		}
		times, err := ds.Times(ctx, e, "")
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		if err != nil || len(times) < 10 {
			continue // The error is reported when the episode is read.
		}
		measured++
		hz := medianRate(times)
		if hz.Zero() || !steady.Zero() && hz != steady {
			return none, nil
		}
		steady = hz
	}
	return steady, nil
}

// medianRate returns the rate of the median step of times, zero if the steps are uneven or the rate
// is no whole number of hertz.
func medianRate(times []int64) robocache.Rate {
	steps := make([]float64, len(times)-1)
	for i := range steps {
		steps[i] = float64(times[i+1] - times[i])
	}
	slices.Sort(steps)
	median := steps[len(steps)/2]
	even := 0
	for _, s := range steps {
		if math.Abs(s-median) <= median/4 {
			even++
		}
	}
	rate := math.Round(1e9 / median)
	isWhole := median > 0 && rate >= 1 && math.Abs(1e9/median-rate) <= 0.01*rate
	if !isWhole || even*10 < len(steps)*9 {
		return robocache.Rate{}
	}
	return robocache.Rate{Num: int64(rate), Den: 1}
}
