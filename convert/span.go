package convert

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// shareSpan says why a view on one grid has no rows, where it has none: which streams of its first episode do not meet in time.
func shareSpan(ctx context.Context, src, view robocache.Dataset, cfg *align.Config, episodes []int) error {
	if cfg == nil || cfg.Extent != "" && cfg.Extent != "intersection" || cfg.Times != nil {
		return nil
	}
	if episodes == nil {
		for e := range view.Info().Episodes {
			episodes = append(episodes, e)
		}
	}
	if len(episodes) == 0 || slices.ContainsFunc(episodes, func(e int) bool { return e < 0 || e >= view.Info().Episodes || view.Len(e) > 0 }) {
		return nil
	}
	e := episodes[0]
	if _, err := view.Episode(ctx, e); err != nil {
		return robocache.At(err, robocache.Where{"episode": e})
	}
	type span struct {
		key      string
		from, to int64
	}
	var late, early *span // the stream that begins last, and the one that ends first
	info := src.Info()
	for i := range info.Features {
		f := &info.Features[i]
		if cfg.Keys != nil && !slices.Contains(cfg.Keys, f.Key) {
			continue
		}
		times, err := src.Times(ctx, e, f.Key)
		if err != nil {
			return robocache.At(err, robocache.Where{"episode": e, "stream": f.Key})
		}
		if !align.Bounds(f, times) {
			continue
		}
		if len(times) == 0 {
			return unshared(info, e, fmt.Sprintf("%s has no samples", f.Key))
		}
		s := &span{f.Key, times[0], times[len(times)-1]}
		if late == nil || s.from > late.from {
			late = s
		}
		if early == nil || s.to < early.to {
			early = s
		}
	}
	if late == nil || late.from <= early.to {
		return nil // offsets, or a span shorter than a step: who writes says that there are no rows
	}
	return unshared(info, e, fmt.Sprintf("%s ends at %s, before %s begins at %s (%s to %s, %s to %s)", early.key, timestamp(early.to), late.key, timestamp(late.from),
		timestamp(early.from), timestamp(early.to), timestamp(late.from), timestamp(late.to)))
}

func unshared(info *robocache.Info, episode int, what string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Where: robocache.Where{"dataset": info.URI, "episode": episode}, Msg: "the streams share no span of time: " + what,
		Hint: `leave a stream out with --keys, shift one ("offset" in the --align file), or take all time that some stream has ("extent": "union")`}
}

// timestamp writes nanoseconds as seconds.
func timestamp(ns int64) string {
	sign, u := "", uint64(ns)
	if ns < 0 {
		sign, u = "-", -u
	}
	return fmt.Sprintf("%s%d.%09d s", sign, u/1e9, u%1e9)
}
