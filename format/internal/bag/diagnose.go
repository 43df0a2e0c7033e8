package bag

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Diagnose reads every message of some episodes, and says of each stream what its stamps show: gaps, duplicates, steps back, and how far its
// clocks lie from each other and drift apart. Damage is what reading met.
func (d *Dataset) Diagnose(ctx context.Context, opt robocache.DiagnoseOptions) (_ []robocache.Finding, err error) {
	defer guard("diagnose", &err)
	eps := opt.Episodes
	if eps == nil {
		eps = make([]int, len(d.eps))
		for i := range eps {
			eps[i] = i
		}
	}
	var out []robocache.Finding
	for k, ep := range eps {
		if _, err := d.episode(ep); err != nil {
			out = append(out, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-episode", Where: robocache.Where{"episode": ep}, Message: err.Error()})
			continue
		}
		for i, t := range d.topics {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			tr, err := d.track(ctx, ep, i, true)
			if err != nil {
				if fatal(err) {
					return nil, err
				}
				out = append(out, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-stream", Where: robocache.Where{"episode": ep, "stream": t.key}, Message: err.Error()})
				continue
			}
			for c := range tr.clocks {
				where := robocache.Where{"episode": ep, "stream": t.clocks[c]}
				out = append(out, gaps(t.choice, tr.clocks[c].by(t.choice), t.latched, where)...)
				out = append(out, apart(t, &tr.clocks[c], where)...)
			}
		}
		if opt.Progress != nil {
			opt.Progress(int64(k+1), int64(len(eps)))
		}
	}
	return append(out, d.Noticed()...), nil
}

// gaps finds what is missing and what is twice in the stamps of a stream.
func gaps(clock string, at []int64, latched bool, where robocache.Where) (out []robocache.Finding) {
	if len(at) < 4 || latched {
		return nil
	}
	diff := make([]int64, len(at)-1)
	twice := int64(0)
	for i := range diff {
		diff[i] = at[i+1] - at[i]
		if diff[i] == 0 {
			twice++
		}
	}
	sorted := slices.Clone(diff)
	slices.Sort(sorted)
	median := sorted[len(sorted)/2]
	var long, worst int64
	place := 0
	for i, v := range diff {
		if median > 0 && v > 3*median {
			long++
			if v > worst {
				worst, place = v, i
			}
		}
	}
	with := func(k string, v any) robocache.Where {
		w := robocache.Where{k: v}
		for a, b := range where {
			w[a] = b
		}
		return w
	}
	if long > 0 {
		out = append(out, robocache.Finding{Severity: robocache.SeverityWarning, Code: "gap", Where: with("row", place), Count: long,
			Message: fmt.Sprintf("%d gaps of more than 3 periods of %v; the longest, %v, behind row %d (clock %s)", long, time.Duration(median), time.Duration(worst), place, clock), Mend: "align with max_gap"})
	}
	if twice > 0 {
		out = append(out, robocache.Finding{Severity: robocache.SeverityWarning, Code: "duplicate-stamps", Where: where, Count: twice, Message: fmt.Sprintf("%d rows have the stamp of the row before them; the last of each counts", twice)})
	}
	return out
}

// apart says how far the recorder's clock lies behind the header's, and whether the two drift apart.
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
	least := func(v []int64) int64 { return slices.Min(v) }
	head, tail := least(late[:n/5]), least(late[n-n/5:])
	sorted := slices.Clone(late)
	slices.Sort(sorted)
	if sorted[0] == 0 && sorted[n-1] == 0 {
		return nil // one clock under two names: recordings that were written from other formats
	}
	out = append(out, robocache.Finding{Severity: robocache.SeverityInfo, Code: "latency", Where: where, Message: fmt.Sprintf("messages were recorded %v after their header (median; %v to %v)", time.Duration(sorted[n/2]), time.Duration(sorted[0]), time.Duration(sorted[n-1]))})
	span := r.log[n-1] - r.log[0]
	if span > int64(10*time.Second) {
		if ppm := float64(tail-head) / float64(span) * 1e6; (ppm > 100 || ppm < -100) && abs(tail-head) > int64(time.Millisecond) {
			out = append(out, robocache.Finding{Severity: robocache.SeverityWarning, Code: "clock-drift", Where: where, Message: fmt.Sprintf("the header's clock and the recorder's drift apart by %.0f parts in a million (%v over the episode)", ppm, time.Duration(tail-head)), Mend: "take one clock for all streams: the option clock=log"})
		}
	}
	return out
}
