package convert

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// span is where a stream's samples of an episode lie in time.
type span struct {
	key   string
	times []int64
}

func (s *span) from() int64 { return s.times[0] }
func (s *span) to() int64   { return s.times[len(s.times)-1] }

// spans are those of the streams that bound an episode's timeline, and which of them begins last
// and ends first.
func spans(
	ctx context.Context,
	src robocache.Dataset,
	cfg *align.Config,
	e int,
) (all []*span, late, early *span, err error) {
	info := src.Info()
	clocks := map[string][]int64{}
	for i := range info.Features {
		f := &info.Features[i]
		if cfg.Keys != nil && !slices.Contains(cfg.Keys, f.Key) {
			continue
		}
		times, ok := clocks[f.Clock]
		if !ok {
			var err error
			times, err = src.Times(ctx, e, f.Key)
			if err := robocache.At(
				err,
				robocache.Where{"episode": info.EpisodeIndex(e), "stream": f.Key},
			); err != nil {
				return all, late, early, err
			}
			clocks[f.Clock] = times
		}
		if !align.Bounds(f, times) {
			continue
		}
		if len(times) == 0 {
			return all, late, early, unshared(info, e, fmt.Sprintf("%s has no samples", f.Key))
		}
		s := &span{f.Key, times}
		all = append(all, s)
		if late == nil || s.from() > late.from() {
			late = s
		}
		if early == nil || s.to() < early.to() {
			early = s
		}
	}
	return all, late, early, nil
}

// shareSpan looks at what a grid over the time that all streams share leaves out. Where that is
// all, the error says which streams of the first episode do not meet; where it is a twentieth or
// more of some stream, a finding counts it.
func shareSpan(
	ctx context.Context,
	src, view robocache.Dataset,
	cfg *align.Config,
	episodes []int,
) (*robocache.Finding, error) {
	if episodes == nil {
		for e := range view.Info().Episodes {
			episodes = append(episodes, e)
		}
	}
	if len(episodes) == 0 || cfg.Extent != "" && cfg.Extent != "intersection" {
		return nil, nil
	}
	if !slices.ContainsFunc(episodes, func(e int) bool { return view.Len(e) > 0 }) {
		e := episodes[0]
		_, err := view.Episode(ctx, e)
		if err := robocache.At(
			err,
			robocache.Where{"episode": src.Info().EpisodeIndex(e)},
		); err != nil {
			return nil, err
		}
		_, late, early, err := spans(ctx, src, cfg, e)
		if err != nil {
			return nil, err
		}
		if late == nil || late.from() <= early.to() {
			// offsets, or a span shorter than a step: who writes says that there are no rows
			return nil, nil
		}
		return nil, unshared(
			src.Info(),
			e,
			fmt.Sprintf(
				"%s ends at %s, before %s begins at %s (%s to %s, %s to %s)",
				early.key,
				timestamp(early.to()),
				late.key,
				timestamp(late.from()),
				timestamp(
					early.from(),
				),
				timestamp(early.to()),
				timestamp(late.from()),
				timestamp(late.to()),
			),
		)
	}
	if !severalClocks(src.Info()) ||
		len(cfg.Offset)+len(cfg.Latency)+len(cfg.Drift)+len(cfg.Clock) > 0 {
		return nil, nil
	}
	type loss struct{ lost, total, worst, episode int }
	lost := map[string]*loss{}
	bounds := map[int]string{} // episode → the stream that cuts most
	for _, e := range episodes {
		var all []*span
		var late, early *span
		if crash.Func("convert", func() error {
			var err error
			if all, late, early, err = spans(ctx, src, cfg, e); err != nil {
				return err
			}
			return nil
		})() != nil {
			continue // the view has a finding of it
		}
		for _, s := range all {
			l := lost[s.key]
			if l == nil {
				l = &loss{}
				lost[s.key] = l
			}
			first, _ := slices.BinarySearch(s.times, late.from())
			last, _ := slices.BinarySearch(s.times, early.to()+1)
			out := len(s.times) - max(0, last-first)
			l.lost, l.total = l.lost+out, l.total+len(s.times)
			if out > l.worst {
				l.worst, l.episode = out, e
			}
		}
		if late != nil {
			// What cuts more: the latest begin or the earliest end.
			first, last := late.from(), early.to()
			for _, s := range all {
				first, last = min(first, s.from()), max(last, s.to())
			}
			bounds[e] = late.key
			if last-early.to() > late.from()-first {
				bounds[e] = early.key
			}
		}
	}
	var most string
	for key, l := range lost {
		if b := lost[most]; l.lost > 0 &&
			(b == nil || l.lost > b.lost || l.lost == b.lost && key < most) {
			most = key
		}
	}
	if l := lost[most]; l != nil && 20*l.lost >= l.total {
		return &robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "span-dropped",
			Where: robocache.Where{
				"stream":  most,
				"episode": src.Info().EpisodeIndex(l.episode),
			},
			Count: int64(l.lost),
			Message: fmt.Sprintf(
				"%d of %d samples lie outside the time that all streams share, which %s bounds, and are left out",
				l.lost,
				l.total,
				bounds[l.episode],
			),
			Hint: spanHint(),
		}, nil
	}
	return nil, nil
}

func spanHint() string {
	return "leave a stream out with " + robocache.Option("keys") + ", shift one with " +
		robocache.Option(
			"align",
			"offset",
			"STREAM",
			"50ms",
		) + ", or take all time that some stream has with " +
		robocache.Option("align", "extent", "union")
}

func unshared(info *robocache.Info, episode int, what string) error {
	return robocache.Misuse("convert", robocache.Where{"dataset": info.URI, "episode": info.EpisodeIndex(episode)}, "the streams share no span of time: %s", what).
		WithHint("%s", spanHint())
}

// timestamp writes nanoseconds as seconds.
func timestamp(ns int64) string {
	sign, u := "", uint64(ns)
	if ns < 0 {
		sign, u = "-", -u
	}
	return fmt.Sprintf("%s%d.%09d s", sign, u/1e9, u%1e9)
}
