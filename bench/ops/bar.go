package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// theCopy names the copy of the same number of bytes, which is a lower bound for the time.
const theCopy = "a plain copy of the bytes"

// checkBar checks a bar on the result of a row. row returns the row with a name and the same number
// of threads.
func checkBar(b report.Bar, r *Result, row func(name string) *Result) report.Check {
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
		found, why := from.fastestRunner(name, b.Cold)
		if found == nil {
			return name, report.Spread{}, why
		}
		return cmp.Or(of, found.Name), *found.callTimes(b.Cold), ""
	})
}

// Runner holds the figures of one runner in a row.
type Runner struct {
	Name    string `json:"name"`
	Setting string `json:"setting,omitempty"`
	// µs per call, one figure per round, with the same buffers in every call
	Hot report.Spread `json:"us"`
	// the same, with buffers that are together four times as large as the caches
	Cold   report.Spread `json:"us_cold,omitzero"`
	Failed string        `json:"failed,omitempty"`
}

// times returns the cold or the hot figures.
func (a *Runner) callTimes(cold bool) *report.Spread {
	if cold {
		return &a.Cold
	}
	return &a.Hot
}

// isAlwaysCold reports whether the cold figures of the runner are measured in every round. This
// holds for RoboCache and the copies, because bars use their figures.
func (a *Runner) isAlwaysCold() bool {
	return a.Name == Ours || isInFamily("memcpy", a.Name) || isInFamily("copy", a.Name)
}

// isInFamily reports whether a bar that names than means this runner. For example, "torch" means
// "torch eager" and "torch.compile". The name of our runner has no variants.
func isInFamily(than, runner string) bool {
	return runner == than ||
		than != Ours && (strings.HasPrefix(runner, than+" ") || strings.HasPrefix(runner, than+"."))
}

// Result holds the figures of one row.
type Result struct {
	Row
	Threads int `json:"threads,omitempty"` // on the CPU only
	// bytes that the work must touch, each counted once
	Bytes   int64          `json:"bytes"`
	Runners []Runner       `json:"arms"`
	Checked string         `json:"checked"` // what was compared before our runner was timed
	Checks  []report.Check `json:"verdicts,omitempty"`
}

// runnerNamed returns the runner with the given name, or nil.
func (r *Result) runnerNamed(name string) *Runner {
	if i := slices.IndexFunc(r.Runners, func(a Runner) bool { return a.Name == name }); i >= 0 {
		return &r.Runners[i]
	}
	return nil
}

// fastestRunner returns the runner of a family with the smallest median, or the reason why there is none.
// For theCopy the reason is empty.
func (r *Result) fastestRunner(than string, cold bool) (best *Runner, why string) {
	if than == theCopy {
		if best, _ = r.fastestRunner("copy", cold); best == nil {
			best, _ = r.fastestRunner("memcpy", cold)
		}
		return best, ""
	}
	why = than + " was not run"
	for i := range r.Runners {
		switch a := &r.Runners[i]; {
		case !isInFamily(than, a.Name):
		case a.Failed != "":
			why = a.Name + ": " + a.Failed
		case len(a.callTimes(cold).Raw) > 0 && (best == nil ||
			a.callTimes(cold).Median < best.callTimes(cold).Median):
			best = a
		}
	}
	return best, why
}

// gbps returns the rate in GB/s at which the bytes of the work are processed.
func (r *Result) gbps(us float64) float64 { return float64(r.Bytes) / max(us, 1e-9) / 1e3 }

// ourSummary formats our figures: µs, GB/s, and the share of the rate of the copy in the same run if
// there is one.
func (r *Result) ourSummary(cold bool) string {
	ours, _ := r.fastestRunner(Ours, cold)
	limit, _ := r.fastestRunner(theCopy, cold)
	switch a := r.runnerNamed(Ours); {
	case a != nil && a.Failed != "":
		return "failed: " + a.Failed
	case ours == nil:
		return "–"
	}
	s := *ours.callTimes(cold)
	out := fmt.Sprintf("%s, %s", report.Short(s), report.Digits(r.gbps(s.Median)))
	if limit != nil {
		out += ", " + report.Digits(100*report.Ratios(*limit.callTimes(cold), s).Median) + " %"
	}
	return out
}
