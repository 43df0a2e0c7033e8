package convert

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// span holds the timestamps of a stream in one episode.
type span struct {
	key   string
	times []int64
}

func (s *span) start() int64 { return s.times[0] }
func (s *span) end() int64   { return s.times[len(s.times)-1] }

// streamSpans returns the spans of the streams that limit an episode's timeline, the one that
// starts last, and the one that ends first.
func streamSpans(
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
			if err := robocache.At(err,
				robocache.Where{"episode": info.EpisodeIndex(e), "stream": f.Key}); err != nil {
				return all, late, early, err
			}
			clocks[f.Clock] = times
		}
		if !align.Bounds(f, times) {
			continue
		}
		if len(times) == 0 {
			return all, late, early, errNoOverlap(info, e, fmt.Sprintf("%s has no samples", f.Key))
		}
		s := &span{f.Key, times}
		all = append(all, s)
		if late == nil || s.start() > late.start() {
			late = s
		}
		if early == nil || s.end() < early.end() {
			early = s
		}
	}
	return all, late, early, nil
}

// findDroppedSpan measures what a grid over the common time of all streams leaves out. If nothing
// remains, the error names the streams of the first episode that do not overlap. If some stream
// loses a twentieth or more of its samples, it returns a finding.
func findDroppedSpan(
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
		if err := robocache.At(err, robocache.Where{"episode": src.Info().EpisodeIndex(e)}); err !=
			nil {
			return nil, err
		}
		_, late, early, err := streamSpans(ctx, src, cfg, e)
		if err != nil {
			return nil, err
		}
		if late == nil || late.start() <= early.end() {
			// The cause is an offset, or a span shorter than a step. The writer reports that there
			// are no rows.
			return nil, nil
		}
		return nil, errNoOverlap(
			src.Info(),
			e,
			fmt.Sprintf(
				"%s ends at %s, before %s begins at %s (%s to %s, %s to %s)",
				early.key,
				formatSeconds(early.end()),
				late.key,
				formatSeconds(late.start()),
				formatSeconds(early.start()),
				formatSeconds(early.end()),
				formatSeconds(late.start()),
				formatSeconds(late.end()),
			),
		)
	}
	if !hasStreamClocks(src.Info()) ||
		len(cfg.Offset)+len(cfg.Latency)+len(cfg.Drift)+len(cfg.Clock) > 0 {
		return nil, nil
	}
	type loss struct{ lost, total, worst, episode int }
	lost := map[string]*loss{}
	bounds := map[int]string{} // episode → the stream that removes most
	for _, e := range episodes {
		var all []*span
		var late, early *span
		if crash.Func("convert", func() error {
			var err error
			if all, late, early, err = streamSpans(ctx, src, cfg, e); err != nil {
				return err
			}
			return nil
		})() != nil {
			continue // the view has a finding for it
		}
		for _, s := range all {
			l := lost[s.key]
			if l == nil {
				l = &loss{}
				lost[s.key] = l
			}
			first, _ := slices.BinarySearch(s.times, late.start())
			last, _ := slices.BinarySearch(s.times, early.end()+1)
			out := len(s.times) - max(0, last-first)
			l.lost, l.total = l.lost+out, l.total+len(s.times)
			if out > l.worst {
				l.worst, l.episode = out, e
			}
		}
		if late != nil {
			// Choose the stream that removes more time: the latest start or the earliest end.
			first, last := late.start(), early.end()
			for _, s := range all {
				first, last = min(first, s.start()), max(last, s.end())
			}
			bounds[e] = late.key
			if last-early.end() > late.start()-first {
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
				"%d of %d samples lie outside the time that all streams share, which %s bounds, "+
					"and are left out",
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
		robocache.Option("align", "offset", "STREAM", "50ms") +
		", or take all time that some stream has with " +
		robocache.Option("align", "extent", "union")
}

func errNoOverlap(info *robocache.Info, episode int, what string) error {
	return robocache.Misuse(
		"convert",
		robocache.Where{"dataset": info.URI, "episode": info.EpisodeIndex(episode)},
		"the streams share no span of time: %s",
		what,
	).WithHint("%s", spanHint())
}

// formatSeconds formats nanoseconds as seconds.
func formatSeconds(ns int64) string {
	sign, u := "", uint64(ns)
	if ns < 0 {
		sign, u = "-", -u
	}
	return fmt.Sprintf("%s%d.%09d s", sign, u/1e9, u%1e9)
}
