package loader

import (
	"context"
	"maps"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Causality reports which samples the streams of a batch use, and whether a robot has them at the
// tick. It reads timestamps of the selected episodes until the time budget is used up; 0 means no
// limit. In a mixture each source gets an equal part of the budget.
func (l *Loader) Causality(
	ctx context.Context, budget time.Duration,
) (*CausalityReport, error) {
	l.assemblerLock.RLock()
	defer l.assemblerLock.RUnlock()
	sources := l.assembler.Sources
	var all *CausalityReport
	for _, src := range sources {
		own, err := src.ReportCausality(ctx, budget/time.Duration(len(sources)))
		if err != nil {
			return nil, src.WithPlace(err)
		}
		if len(sources) == 1 {
			return own, nil
		}
		for i := range own.Streams {
			own.Streams[i].Source = src.Name
		}
		for i := range own.Findings {
			f := &own.Findings[i]
			where := robocache.Where{"source": src.Name}
			maps.Copy(where, f.Where)
			f.Where = where
		}
		if all == nil {
			all = own
			all.TimeBudget = budget.Seconds()
			continue
		}
		all.Episodes += own.Episodes
		all.TotalEpisodes += own.TotalEpisodes
		all.Streams = append(all.Streams, own.Streams...)
		all.Findings = append(all.Findings, own.Findings...)
	}
	return all, nil
}
