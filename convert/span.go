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
	isIntersection := cfg.Extent == "" || cfg.Extent == "intersection"
	if len(episodes) == 0 || !isIntersection {
		return nil, nil
	}
	if !slices.ContainsFunc(episodes, func(e int) bool { return view.Len(e) > 0 }) {
		return nil, errSpanEmpty(ctx, src, view, cfg, episodes[0])
	}
	movesClocks := len(cfg.Offset)+len(cfg.Latency)+len(cfg.Drift)+len(cfg.Clock) > 0
	if movesClocks || !hasStreamClocks(src.Info()) {
		return nil, nil
	}
	losses := spanLosses{byStream: map[string]*spanLoss{}, bounds: map[int]string{}}
	for _, e := range episodes {
		var all []*span
		var late, early *span
		err := crash.Func("convert", func() (err error) {
			all, late, early, err = streamSpans(ctx, src, cfg, e)
			return err
		})()
		if err != nil {
			continue // the view has a finding for it
		}
		losses.countSamples(e, all, late, early)
	}
	return losses.describeLosses(src.Info()), nil
}

// errSpanEmpty returns why the view of an episode has no rows: the error of the episode, or the
// names of the streams that do not overlap. It returns nil if the streams overlap. Then the cause is
// an offset, or a span shorter than a step, and the writer reports that there are no rows.
func errSpanEmpty(
	ctx context.Context,
	src, view robocache.Dataset,
	cfg *align.Config,
	e int,
) error {
	_, err := view.Episode(ctx, e)
	where := robocache.Where{"episode": src.Info().EpisodeIndex(e)}
	if err := robocache.At(err, where); err != nil {
		return err
	}
	_, late, early, err := streamSpans(ctx, src, cfg, e)
	if err != nil {
		return err
	}
	if late == nil || late.start() <= early.end() {
		return nil
	}
	return errNoOverlap(
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

// spanLoss counts the samples of a stream outside the time that all streams share.
type spanLoss struct {
	lost    int
	total   int
	worst   int // lost samples of the episode that loses most
	episode int // that episode
}

// spanLosses counts the samples that a grid over the common time of all streams leaves out.
type spanLosses struct {
	byStream map[string]*spanLoss
	bounds   map[int]string // episode → the stream that removes most
}

// countSamples counts the samples of an episode. late is the stream that starts last, and early the
// stream that ends first.
func (l *spanLosses) countSamples(e int, all []*span, late, early *span) {
	for _, s := range all {
		loss := l.byStream[s.key]
		if loss == nil {
			loss = &spanLoss{}
			l.byStream[s.key] = loss
		}
		first, _ := slices.BinarySearch(s.times, late.start())
		end, _ := slices.BinarySearch(s.times, early.end()+1)
		lost := len(s.times) - max(0, end-first)
		loss.lost += lost
		loss.total += len(s.times)
		if lost > loss.worst {
			loss.worst = lost
			loss.episode = e
		}
	}
	if late == nil {
		return
	}
	// Choose the stream that removes more time: the latest start or the earliest end.
	first := late.start()
	last := early.end()
	for _, s := range all {
		first = min(first, s.start())
		last = max(last, s.end())
	}
	l.bounds[e] = late.key
	if last-early.end() > late.start()-first {
		l.bounds[e] = early.key
	}
}

// mostLost returns the stream that loses most samples, the first of them in the alphabet, or "" if
// none loses any.
func (l *spanLosses) mostLost() (most string) {
	most, worst := "", 0
	for key, loss := range l.byStream {
		isFirst := loss.lost == worst && key < most
		if loss.lost > worst || isFirst {
			most, worst = key, loss.lost
		}
	}
	return most
}

// describeLosses returns a finding if some stream loses a twentieth or more of its samples, or nil.
func (l *spanLosses) describeLosses(info *robocache.Info) *robocache.Finding {
	key := l.mostLost()
	loss := l.byStream[key]
	if loss == nil || 20*loss.lost < loss.total {
		return nil
	}
	return &robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "span-dropped",
		Where: robocache.Where{
			"stream":  key,
			"episode": info.EpisodeIndex(loss.episode),
		},
		Count: int64(loss.lost),
		Message: fmt.Sprintf(
			"%d of %d samples lie outside the time that all streams share, which %s bounds, "+
				"and are left out",
			loss.lost,
			loss.total,
			l.bounds[loss.episode],
		),
		Hint: spanHint(),
	}
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
	sign := ""
	u := uint64(ns)
	if ns < 0 {
		sign = "-"
		u = -u
	}
	return fmt.Sprintf("%s%d.%09d s", sign, u/1e9, u%1e9)
}
