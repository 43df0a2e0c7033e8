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

// Diagnose reads every message of some episodes, and says what is of recordings alone: how far the
// clocks of a message lie from each other and drift apart, which messages their senders counted and
// the recording lacks, sums that do not hold, damage that reading met. What timestamps by
// themselves show (gaps, repeats) is package diagnose's.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (_ []robocache.Finding, err error) {
	defer guard.Recover("diagnose", &err)
	eps := reader.Episodes(opt.Episodes, len(d.eps))
	var out []robocache.Finding
	verified := map[int]bool{}
	for k, ep := range eps {
		e, err := guard.Value(func() *episode { return d.episode(ep) })
		if guard.RaiseInternal(err) != nil {
			out = append(
				out,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-episode",
					Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep)},
					Message:  err.Error(),
				},
			)
			continue
		}
		out = append(append(out, d.diagnose(ctx, ep)...), d.checkVideos(ctx, ep, opt.Decode)...)
		if !verified[e.rec] {
			verified[e.rec] = true
			err := d.pool.use(ctx, e.rec, func(s Storage) error {
				found, err := s.Verify(ctx)
				out = append(out, found...)
				return err
			})
			if err := local(err); err != nil {
				out = append(
					out,
					robocache.Finding{
						Severity: robocache.SeverityError,
						Code:     "unreadable-recording",
						Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep)},
						Message:  err.Error(),
					},
				)
			}
		}
		if opt.Progress != nil {
			opt.Progress(int64(k+1), int64(len(eps)))
		}
	}
	return append(out, d.Noticed()...), nil
}

// local gives an error that is about one recording's bytes; any other ends the work.
func local(err error) error {
	if err != nil && fatal(err) {
		guard.Fail(err)
	}
	return err
}

// diagnose looks at the streams of one episode.
func (d *Dataset) diagnose(ctx context.Context, ep int) (out []robocache.Finding) {
	for i, t := range d.topics {
		guard.Check(ctx.Err())
		tr, err := guard.Value(func() *track { return d.track(ctx, ep, i, true) })
		if err := local(err); err != nil {
			out = append(
				out,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-stream",
					Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.key},
					Message:  err.Error(),
				},
			)
			continue
		}
		for c := range tr.clocks {
			out = append(
				out,
				apart(
					t,
					&tr.clocks[c],
					robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.clocks[c]},
				)...)
		}
		for k := range d.streams {
			if s := &d.streams[k]; s.topic == i && s.column >= 0 {
				_ = local(
					guard.Try(
						func() { out = append(out, d.countedRows(ctx, ep, t, &d.About.Features[k], tr.clocks[s.clock].n)...) },
					),
				)
			}
		}
	}
	// streams that cannot be read were named above
	_ = local(guard.Try(func() { out = append(out, d.lost(ctx, ep)...) }))
	return out
}

// apart says how far the recorder's clock lies behind the header's, and whether the two drift
// apart.
func apart(t *topic, r *rows, where robocache.Where) (out []robocache.Finding) {
	n := len(r.header)
	if !t.stamped || n < 20 || len(r.log) != n {
		return nil
	}
	late := make([]int64, n)
	for i := range late {
		late[i] = r.log[i] - r.header[i]
	}
	// Delays only ever add: the least of the first and of the last fifth show the clocks.
	least := func(from, to int) int {
		at := from
		for i := from; i < to; i++ {
			if late[i] < late[at] {
				at = i
			}
		}
		return at
	}
	a, b := least(0, n/5), least(n-n/5, n)
	head, tail := late[a], late[b]
	middle := late[least(2*n/5, n-2*n/5)]
	sorted := slices.Clone(late)
	slices.Sort(sorted)
	if sorted[0] == 0 && sorted[n-1] == 0 {
		return nil // one clock under two names: recordings that were written from other formats
	}
	out = append(
		out,
		robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "latency",
			Where:    where,
			Message: fmt.Sprintf(
				"messages were recorded %v after their header (median; %v to %v)",
				time.Duration(sorted[n/2]),
				time.Duration(sorted[0]),
				time.Duration(sorted[n-1]),
			),
		},
	)
	span := r.log[n-1] - r.log[0]
	if between := r.log[b] - r.log[a]; span > int64(10*time.Second) && between > 0 {
		// A drift goes on all the time: a clock that steps is no drift (diagnose tells steps).
		steady := abs(2*middle-head-tail) < abs(tail-head)/2
		// The rate is that between the two messages, which lie nearer to each other than the ends
		// do.
		if ppm := float64(
			tail-head,
		) / float64(
			between,
		) * 1e6; steady && (ppm > 100 || ppm < -100) &&
			abs(tail-head) > int64(time.Millisecond) {
			out = append(
				out,
				robocache.Finding{
					Severity: robocache.SeverityWarning,
					Code:     "clock-drift",
					Where:    where,
					Message: fmt.Sprintf(
						"the header's clock and the recorder's drift apart by %.0f parts in a million (%v over the episode)",
						ppm,
						time.Duration(ppm/1e6*float64(span)).Round(time.Microsecond),
					),
					Hint: "take one clock for all streams: " + robocache.Option(
						"options",
						"clock",
						"log",
					),
				},
			)
		}
	}
	return out
}
