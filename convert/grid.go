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
	cfg := gridConfig(info, opt)
	if cfg.HZ.Zero() {
		return nil, errNoRate(info)
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
		viewOptions.Episodes = opt.Episodes
		viewOptions.Masks = opt.masks
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
	dropped, err := findDroppedSpan(ctx, src, v, &cfg, opt.Episodes)
	if err != nil {
		return nil, err
	}
	if dropped != nil {
		v.Info().Findings = append(v.Info().Findings, *dropped)
	}
	viewJSON, err := json.Marshal(struct {
		Align       *align.Config `json:"align"`
		DropInvalid bool          `json:"drop_invalid"`
	}{&cfg, opt.DropInvalid})
	if err != nil {
		return nil, robocache.Misuse("convert", nil, "").WithCause(err)
	}
	w.View = string(viewJSON)
	w.FPS = cfg.HZ
	w.OnGrid = true
	if opt.Keys != nil {
		w.Keys = keysWithMasks(v.Info(), opt.Keys)
	}
	return v, nil
}

// gridConfig returns the configuration of the alignment. Its rate is zero if none is known.
func gridConfig(info *robocache.Info, opt *Options) (cfg align.Config) {
	if opt.Align != nil {
		cfg = *opt.Align
	}
	for _, hz := range []robocache.Rate{opt.FPS, info.FPS} {
		if cfg.HZ.Zero() {
			cfg.HZ = hz
		}
	}
	if cfg.Keys == nil && opt.Keys != nil {
		cfg.Keys = opt.Keys
	}
	return cfg
}

// keysWithMasks returns the chosen keys that a view has, each followed by its mask. Every dataset
// has the task; it is not a stream of a view.
func keysWithMasks(view *robocache.Info, chosen []string) []string {
	out := []string{}
	for _, key := range chosen {
		if key != "task" {
			out = append(out, key)
		}
		mask := key + align.ValidSuffix
		if view.Feature(mask) != nil && !slices.Contains(chosen, mask) {
			out = append(out, mask)
		}
	}
	return out
}
