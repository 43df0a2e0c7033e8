package convert

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// severalClocks says that some stream of a dataset has a clock of its own.
func severalClocks(info *robocache.Info) bool {
	for i := range info.Features {
		if info.Features[i].Clock != "" {
			return true
		}
	}
	return false
}

// noRate is the error of streams with clocks of their own if no rate is stated.
func noRate(info *robocache.Info) error {
	rows := "rows that keep no clock"
	if clocks := info.DescribeUnusedClocks(); clocks != "" {
		rows = "rows whose clock is not used (" + clocks + ")"
	}
	return robocache.Misuse("convert", robocache.Where{"dataset": info.URI},
		"the streams have clocks of their own, and none states a rate to bring them to").
		WithHint("give one: %s; of %s %s says the rate they were recorded at",
			robocache.Option("hz"), rows, robocache.Option("rows_hz"))
}

// onGrid returns the source itself if nothing is to be aligned, else a view of it on one grid. It
// sets in w what the writer must know of the view. Streams that the format f cannot hold have no
// part in masks, findings and seams.
func onGrid(
	ctx context.Context,
	src robocache.Dataset,
	f *robocache.Format,
	opt *Options,
	w *robocache.WriteOptions,
) (_ robocache.Dataset, err error) {
	defer crash.Recover("convert", &err)
	info := src.Info()
	if opt.Align == nil && !severalClocks(info) {
		return src, nil
	}
	var cfg align.Config
	if opt.Align != nil {
		cfg = *opt.Align
	}
	for _, hz := range []robocache.Rate{opt.FPS, info.FPS} {
		if cfg.HZ.Zero() {
			cfg.HZ = hz
		}
	}
	if cfg.HZ.Zero() {
		return nil, noRate(info)
	}
	if cfg.Keys == nil && opt.Keys != nil {
		cfg.Keys = opt.Keys
	}
	how := align.ViewOptions{
		DropInvalid: opt.DropInvalid && !opt.KeepGaps,
		Rhythm:      true,
		Exact:       true,
		Threads:     opt.Threads,
	}
	if f.Keeps != nil {
		how.Ignore = func(stream *robocache.Feature) bool { return !f.Keeps(stream) }
	}
	if w.Shard != nil {
		how.Episodes, how.Masks = opt.Episodes, opt.masks
	}
	v, err := align.View(ctx, src, cfg, how)
	if err != nil {
		return nil, err
	}
	if dropped, err := shareSpan(ctx, src, v, &cfg, opt.Episodes); err != nil {
		return nil, err
	} else if dropped != nil {
		v.Info().Findings = append(v.Info().Findings, *dropped)
	}
	made, err := json.Marshal(struct {
		Align       *align.Config `json:"align"`
		DropInvalid bool          `json:"drop_invalid"`
	}{&cfg, opt.DropInvalid})
	if err != nil {
		return nil, robocache.Misuse("convert", nil, "").WithCause(err)
	}
	w.View, w.FPS, w.OnGrid = string(made), cfg.HZ, true
	if opt.Keys != nil {
		// The masks of what is kept, too. The task is there for every dataset, and is no stream of
		// a view.
		w.Keys = []string{}
		for _, k := range opt.Keys {
			if k != "task" {
				w.Keys = append(w.Keys, k)
			}
			if v.Info().Feature(k+align.ValidSuffix) != nil &&
				!slices.Contains(opt.Keys, k+align.ValidSuffix) {
				w.Keys = append(w.Keys, k+align.ValidSuffix)
			}
		}
	}
	return v, w.Check(v.Info())
}
