package convert

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// hasStreamClocks reports whether some stream of a dataset has its own clock.
func hasStreamClocks(info *robocache.Info) bool {
	for i := range info.Features {
		if info.Features[i].Clock != "" {
			return true
		}
	}
	return false
}

// errNoRate returns the error for streams with their own clocks and no known rate.
func errNoRate(info *robocache.Info) error {
	rows := "rows that keep no clock"
	if clocks := info.DescribeUnusedClocks(); clocks != "" {
		rows = "rows whose clock is not used (" + clocks + ")"
	}
	return robocache.Misuse("convert", robocache.Where{"dataset": info.URI},
		"the streams have clocks of their own, and none states a rate to bring them to").
		WithHint("Set a rate: %s. For %s, %s states the recorded rate.",
			robocache.Option("hz"), rows, robocache.Option("rows_hz"))
}

// alignToGrid returns the source itself if nothing must be aligned, else a view of it on one grid.
// It sets the options of w that depend on the view. Streams that the format f cannot hold do not
// affect masks, findings and splits of episodes.
func alignToGrid(
	ctx context.Context,
	src robocache.Dataset,
	f *robocache.Format,
	opt *Options,
	w *robocache.WriteOptions,
) (_ robocache.Dataset, err error) {
	defer crash.Recover("convert", &err)
	info := src.Info()
	if opt.Align == nil && !hasStreamClocks(info) {
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
		return nil, errNoRate(info)
	}
	if cfg.Keys == nil && opt.Keys != nil {
		cfg.Keys = opt.Keys
	}
	viewOptions := align.ViewOptions{
		DropInvalid: opt.DropInvalid && !opt.KeepGaps,
		Rhythm:      true,
		Exact:       true,
		Threads:     opt.Threads,
	}
	if f.Keeps != nil {
		viewOptions.Ignore = func(stream *robocache.Feature) bool { return !f.Keeps(stream) }
	}
	if w.Shard != nil {
		viewOptions.Episodes, viewOptions.Masks = opt.Episodes, opt.masks
	}
	v, err := align.View(ctx, src, cfg, viewOptions)
	if err != nil {
		return nil, err
	}
	written := []string{}
	for i := range info.Features {
		f := &info.Features[i]
		if (cfg.Keys == nil || slices.Contains(cfg.Keys, f.Key)) &&
			(viewOptions.Ignore == nil || !viewOptions.Ignore(f)) {
			written = append(written, f.Key)
		}
	}
	if note := cfg.ArrivalNote(src, written); note != nil {
		v.Info().Findings = append(v.Info().Findings, *note)
	}
	if dropped, err := findDroppedSpan(ctx, src, v, &cfg, opt.Episodes); err != nil {
		return nil, err
	} else if dropped != nil {
		v.Info().Findings = append(v.Info().Findings, *dropped)
	}
	viewJSON, err := json.Marshal(struct {
		Align       *align.Config `json:"align"`
		DropInvalid bool          `json:"drop_invalid"`
	}{&cfg, opt.DropInvalid})
	if err != nil {
		return nil, robocache.Misuse("convert", nil, "").WithCause(err)
	}
	w.View, w.FPS, w.OnGrid = string(viewJSON), cfg.HZ, true
	if opt.Keys != nil {
		// Masks of the chosen streams are written too. Every dataset has the task; it is not a
		// stream of a view.
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
