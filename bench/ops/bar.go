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
	if b.Unit != "share" && b.Row == "" {
		b.Floor = theCopy
	}
	return b.Check(func(name, of string) (string, report.Spread, string) {
		from := r
		if of != "" {
			if from = row(of); from == nil {
				return of, report.Spread{}, of + " was not run"
			}
		}
		found, why := from.fastest(name, b.Cold)
		if found == nil {
			return name, report.Spread{}, why
		}
		return cmp.Or(of, found.Name), *found.us(b.Cold), ""
	})
}

// Runner is a timer's figures in a row.
type Runner struct {
	Name    string `json:"name"`
	Setting string `json:"setting,omitempty"`
	// µs a call, a figure a round: the same buffers again and again
	Hot report.Spread `json:"us"`
	// buffers that together are four times the caches
	Cold   report.Spread `json:"us_cold,omitzero"`
	Failed string        `json:"failed,omitempty"`
}

func (a *Runner) us(cold bool) *report.Spread {
	if cold {
		return &a.Cold
	}
	return &a.Hot
}

// always says whether the runner's cold figures are taken in every round: bars look at those of
// ours and of the copies.
func (a *Runner) always() bool {
	return a.Name == Ours || family("memcpy", a.Name) || family("copy", a.Name)
}

// family says whether a runner is one of those that a bar names: "torch" is "torch eager" and
// "torch.compile". Ours is one alone.
func family(than, runner string) bool {
	return runner == than ||
		than != Ours && (strings.HasPrefix(runner, than+" ") || strings.HasPrefix(runner, than+"."))
}

// Result is a row that was run.
type Result struct {
	Row
	Threads int `json:"threads,omitempty"` // cpu
	// touched by the work: each byte that it cannot do without, once
	Bytes   int64          `json:"bytes"`
	Runners []Runner       `json:"arms"`
	Checked string         `json:"checked"` // what was compared before ours was timed
	Checks  []report.Check `json:"verdicts,omitempty"`
}

func (r *Result) runner(name string) *Runner {
	if i := slices.IndexFunc(r.Runners, func(a Runner) bool { return a.Name == name }); i >= 0 {
		return &r.Runners[i]
	}
	return nil
}

// fastest is the runner of a family with the least median, or why there is none: nothing is said of
// the copy of as many bytes, theCopy.
func (r *Result) fastest(than string, cold bool) (best *Runner, why string) {
	if than == theCopy {
		if best, _ = r.fastest("copy", cold); best == nil {
			best, _ = r.fastest("memcpy", cold)
		}
		return best, ""
	}
	why = than + " was not run"
	for i := range r.Runners {
		switch a := &r.Runners[i]; {
		case !family(than, a.Name):
		case a.Failed != "":
			why = a.Name + ": " + a.Failed
		case len(a.us(cold).Raw) > 0 && (best == nil || a.us(cold).Median < best.us(cold).Median):
			best = a
		}
	}
	return best, why
}

// gbps is the rate at which the work's bytes went by.
func (r *Result) gbps(us float64) float64 { return float64(r.Bytes) / max(us, 1e-9) / 1e3 }

// summary is ours as the tables have it: beside the copy of the same run, where there is one.
func (r *Result) summary(cold bool) string {
	ours, _ := r.fastest(Ours, cold)
	limit, _ := r.fastest(theCopy, cold)
	switch a := r.runner(Ours); {
	case a != nil && a.Failed != "":
		return "failed: " + a.Failed
	case ours == nil:
		return "–"
	}
	s := *ours.us(cold)
	out := fmt.Sprintf("%s, %s", report.Short(s), report.Digits(r.gbps(s.Median)))
	if limit != nil {
		out += ", " + report.Digits(100*report.Ratios(*limit.us(cold), s).Median) + " %"
	}
	return out
}
