package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// theCopy names the copy of as many bytes, which nothing can go below.
const theCopy = "a plain copy of the bytes"

// check measures a bar on a row's result; row finds those of the same threads.
func check(b report.Bar, r *Result, row func(name string) *Result) report.Check {
	b.Ours, b.Metric = cmp.Or(b.Ours, Ours), "us" // reports of before do not say
	if b.Unit != "share" && b.Row == "" {
		b.Floor = theCopy
	}
	return b.Check(func(name, of string) (string, report.Spread, string) {
		from, found := r, (*Runner)(nil)
		if of != "" {
			if from = row(of); from == nil {
				return of, report.Spread{}, of + " was not run"
			}
		}
		switch why := from.missing(name, b.Cold); {
		case from.Skipped != "":
			return name, report.Spread{}, from.Skipped
		case name == theCopy:
			found = from.limit(b.Cold)
		case why != "":
			return name, report.Spread{}, why
		default:
			found = from.fastest(name, b.Cold)
		}
		if found == nil {
			return name, report.Spread{}, ""
		}
		return cmp.Or(of, found.Name), *found.us(b.Cold), ""
	})
}

// Runner is a timer's figures in a row.
type Runner struct {
	Name    string        `json:"name"`
	Setting string        `json:"setting,omitempty"`
	Hot     report.Spread `json:"us"`               // µs a call, a figure a round: the same buffers again and again
	Cold    report.Spread `json:"us_cold,omitzero"` // buffers that together are four times the caches
	Failed  string        `json:"failed,omitempty"`
}

func (a *Runner) us(cold bool) *report.Spread {
	if cold {
		return &a.Cold
	}
	return &a.Hot
}

// always says whether the runner's cold figures are taken in every round: bars look at those of ours and of the copies.
func (a *Runner) always() bool {
	return a.Name == Ours || family("memcpy", a.Name) || family("copy", a.Name)
}

// family says whether a runner is one of those that a bar names: "torch" is "torch eager" and "torch.compile". Ours is one alone.
func family(than, runner string) bool {
	return runner == than || than != Ours && (strings.HasPrefix(runner, than+" ") || strings.HasPrefix(runner, than+"."))
}

// Result is a row that was run.
type Result struct {
	Row
	Threads int            `json:"threads,omitempty"` // cpu
	Bytes   int64          `json:"bytes"`             // touched by the work: each byte that it cannot do without, once
	Runners []Runner       `json:"arms"`
	Checked string         `json:"checked"`           // what was compared before ours was timed
	Skipped string         `json:"skipped,omitempty"` // why the row was not run here
	Checks  []report.Check `json:"verdicts,omitempty"`
}

func (r *Result) runner(name string) *Runner {
	if i := slices.IndexFunc(r.Runners, func(a Runner) bool { return a.Name == name }); i >= 0 {
		return &r.Runners[i]
	}
	return nil
}

// fastest is the runner of a family with the least median.
func (r *Result) fastest(than string, cold bool) *Runner {
	var best *Runner
	for i := range r.Runners {
		a := &r.Runners[i]
		if family(than, a.Name) && a.Failed == "" && len(a.us(cold).Raw) > 0 && (best == nil || a.us(cold).Median < best.us(cold).Median) {
			best = a
		}
	}
	return best
}

// limit is the copy of as many bytes, of the same run.
func (r *Result) limit(cold bool) *Runner {
	if a := r.fastest("copy", cold); a != nil {
		return a
	}
	return r.fastest("memcpy", cold)
}

// missing says why a family has no figure; "" where it has one.
func (r *Result) missing(than string, cold bool) string {
	if r.fastest(than, cold) != nil {
		return ""
	}
	for _, a := range r.Runners {
		if family(than, a.Name) && a.Failed != "" {
			return a.Name + ": " + a.Failed
		}
	}
	return than + " was not run"
}

// gbps is the rate at which the work's bytes went by.
func (r *Result) gbps(us float64) float64 { return float64(r.Bytes) / max(us, 1e-9) / 1e3 }

// share is ours against the copy of the same run; empty where one is missing.
func (r *Result) share(cold bool) report.Spread {
	if r.missing(Ours, cold) != "" || r.limit(cold) == nil {
		return report.Spread{}
	}
	return report.Ratios(*r.limit(cold).us(cold), *r.runner(Ours).us(cold))
}

// summary is ours as the tables have it.
func (r *Result) summary(cold bool) string {
	ours := r.runner(Ours)
	switch {
	case r.Skipped != "":
		return r.Skipped
	case ours == nil:
		return "–"
	case ours.Failed != "":
		return "failed: " + ours.Failed
	case len(ours.us(cold).Raw) == 0:
		return "–"
	}
	s := *ours.us(cold)
	out := fmt.Sprintf("%s, %s", report.Short(s), report.Digits(r.gbps(s.Median)))
	if share := r.share(cold); len(share.Raw) > 0 {
		out += ", " + report.Digits(100*share.Median) + " %"
	}
	return out
}
