package bag

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Diagnose reads every message of the episodes and reports what only recordings can show. This
// includes differences and drift between the clocks of a message, messages that senders counted and
// the recording lacks, wrong checksums, and damage. Package diagnose reports what the timestamps
// alone show, such as gaps and repeats.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (_ []robocache.Finding, err error) {
	defer guard.Recover("diagnose", &err)
	eps := reader.Episodes(opt.Episodes, len(d.episodes))
	var out []robocache.Finding
	verified := map[int]bool{}
	for k, ep := range eps {
		e, err := guard.Value(func() *episode { return d.openEpisode(ep) })
		if guard.RaiseInternal(err) != nil {
			out = append(out, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "unreadable-episode",
				Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep)},
				Message:  err.Error(),
			})
			continue
		}
		out = append(
			append(out, d.diagnoseEpisode(ctx, ep)...),
			d.checkVideos(ctx, ep, opt.Decode)...)
		if !verified[e.rec] {
			verified[e.rec] = true
			err := d.pool.withStorage(ctx, e.rec, func(s Storage) error {
				found, err := s.Verify(ctx)
				out = append(out, found...)
				return err
			})
			if err := episodeError(err); err != nil {
				out = append(out, robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-recording",
					Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep)},
					Message:  err.Error(),
				})
			}
		}
		if opt.Progress != nil {
			opt.Progress(int64(k+1), int64(len(eps)))
		}
	}
	return append(out, d.Noticed()...), nil
}

// episodeError returns an error that concerns the data of one recording. Any other error fails the
// call.
func episodeError(err error) error {
	if err != nil && isFatal(err) {
		guard.Fail(err)
	}
	return err
}

// diagnoseEpisode checks the streams of one episode.
func (d *Dataset) diagnoseEpisode(ctx context.Context, ep int) (out []robocache.Finding) {
	for i, t := range d.topics {
		guard.Check(ctx.Err())
		tr, err := guard.Value(func() *track { return d.trackOf(ctx, ep, i, true) })
		if err := episodeError(err); err != nil {
			out = append(out, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "unreadable-stream",
				Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.key},
				Message:  err.Error(),
			})
			continue
		}
		for c := range tr.clocks {
			out = append(
				out,
				compareClocks(
					t,
					&tr.clocks[c],
					robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.clocks[c]},
				)...)
		}
		for k := range d.streams {
			if s := &d.streams[k]; s.topic == i && s.column >= 0 {
				_ = episodeError(guard.Try(func() {
					out = append(
						out,
						d.findLostRows(ctx, ep, t, &d.About.Features[k], tr.clocks[s.clock].n)...,
					)
				}))
			}
		}
	}
	// streams that cannot be read are already reported
	_ = episodeError(guard.Try(func() { out = append(out, d.findLost(ctx, ep)...) }))
	return out
}

// compareClocks reports the delay between the header's clock and the recorder's clock, and a drift
// between them. It reports nothing for topics without headers or with few messages.
func compareClocks(t *topic, r *rows, where robocache.Where) (out []robocache.Finding) {
	n := len(r.header)
	if !t.hasHeader || n < 20 || len(r.log) != n {
		return nil
	}
	delays := make([]int64, n)
	for i := range delays {
		delays[i] = r.log[i] - r.header[i]
	}
	// A delay can only increase the difference of the clocks. Therefore the smallest differences in
	// the first and in the last fifth are closest to the difference of the clocks alone.
	leastDelayed := func(from, to int) int {
		best := from
		for i := from; i < to; i++ {
			if delays[i] < delays[best] {
				best = i
			}
		}
		return best
	}
	first := leastDelayed(0, n/5)
	last := leastDelayed(n-n/5, n)
	middle := leastDelayed(2*n/5, n-2*n/5)
	sorted := slices.Clone(delays)
	slices.Sort(sorted)
	if sorted[0] == 0 && sorted[n-1] == 0 {
		// Both are one clock, as in recordings that were converted from other formats.
		return nil
	}
	out = append(out, robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "latency",
		Where:    where,
		Message: fmt.Sprintf(
			"messages were recorded %v after their header (median; %v to %v)",
			time.Duration(sorted[n/2]),
			time.Duration(sorted[0]),
			time.Duration(sorted[n-1]),
		),
	})
	elapsed := r.log[last] - r.log[first]
	ppm, isDrift := clockDrift(delays[first], delays[middle], delays[last], elapsed)
	span := r.log[n-1] - r.log[0]
	if isDrift && span > int64(10*time.Second) {
		out = append(out, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "clock-drift",
			Where:    where,
			Message: fmt.Sprintf(
				"the header's clock and the recorder's drift apart by %.0f parts in a "+
					"million (%v over the episode)",
				ppm,
				time.Duration(ppm/1e6*float64(span)).Round(time.Microsecond),
			),
			Hint: "take one clock for all streams: " +
				robocache.Option("options", "clock", "log"),
		})
	}
	return out
}

// clockDrift returns the rate at which the smallest delay changes, in parts in a million, and
// whether this is a drift. head, middle and tail are the smallest delays at the start, in the
// middle and at the end, in nanoseconds. elapsed is the time between the messages of head and tail,
// which is shorter than the recording.
func clockDrift(head, middle, tail, elapsed int64) (ppm float64, isDrift bool) {
	if elapsed <= 0 {
		return 0, false
	}
	change := tail - head
	ppm = float64(change) / float64(elapsed) * 1e6
	// With a drift, the delay changes at a constant rate, so middle is near the mean of head and
	// tail. Steps of a clock are not drift, and package diagnose reports them.
	isSteady := abs(2*middle-head-tail) < abs(change)/2
	isLarge := (ppm > 100 || ppm < -100) && abs(change) > int64(time.Millisecond)
	return ppm, isSteady && isLarge
}
