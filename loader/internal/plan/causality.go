package plan

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// CausalityReport states which samples the streams of a batch use.
type CausalityReport = align.CausalityReport

// ReportCausality reports which samples the rows of a batch use (align.Config.ReportCausality). It
// reads the source's episodes, and of each window the newest row.
func (src *Source) ReportCausality(
	ctx context.Context, budget time.Duration,
) (*CausalityReport, error) {
	var cfg align.Config
	if src.Config.Align != nil {
		cfg = *src.Config.Align
	}
	cfg.Keys = src.streamKeys()
	cfg.Modes = maps.Clone(cfg.Modes)
	for _, c := range src.Columns {
		if c.Time == nil || c.Feature == nil || !c.Time.IsNative && c.Span == nil {
			continue
		}
		if cfg.Modes == nil {
			cfg.Modes = map[string]align.Mode{}
		}
		cfg.Modes[c.Feature.Key] = c.Time.Options.Mode
	}
	opt := align.ReportOptions{Budget: budget, NewestRows: src.newestRows}
	for place := range src.Table.Len() {
		opt.Episodes = append(opt.Episodes, src.Table.Episode(place))
	}
	opt.Ticks = func(ctx context.Context, episode int) ([]int64, error) {
		times, err := src.Timestamps.OfStream(ctx, episode, src.Timebase.Key)
		times = slices.Clone(times)
		shiftTimes(times, src.Timebase.Shift)
		return times, err
	}
	return cfg.ReportCausality(ctx, src.Dataset, opt)
}

// newestRows returns for each tick the time of the newest row of a column's window, and the time
// until which that row must have arrived.
func (src *Source) newestRows(key string, ticks []int64) (targets, nows []int64) {
	columns := src.readColumns()
	c := columns[slices.IndexFunc(columns, func(c *column.Column) bool {
		return c.StreamKey() == key && c.Feature != nil
	})]
	w := &src.Windows[c.Window]
	targets = slices.Clone(ticks)
	switch {
	case c.Time == nil:
		offset := slices.Max(w.Offsets)
		for i := range targets {
			targets[i] = ticks[min(max(i+offset, 0), len(ticks)-1)]
		}
	case c.Span != nil:
		shiftTimes(targets, c.Span[1])
	default:
		shiftTimes(targets, slices.Max(w.Nanos))
	}
	if src.Config.Native.Of(key) != nil {
		return targets, ticks
	}
	return targets, targets // each row counts what had arrived at its own time
}

// shiftTimes adds by to each of times.
func shiftTimes(times []int64, by int64) {
	for i := range times {
		times[i] += by
	}
}
