package ops

import (
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// OpsOurs is the name of our runner.
const Ours = "robocache"

// OpsRow is one line of `bench ops`: a workload on a device, and what is asked of ours.
type Row struct {
	Name   string `json:"name"` // as in --rows
	Title  string `json:"title"`
	Device string `json:"device"` // cpu, cuda
	Work   Work   `json:"work"`
	Bars   []Bar  `json:"bars,omitempty"`
	Curve  string `json:"curve,omitempty"` // the sweep that it is a point of
	Quick  bool   `json:"-"`               // --quick runs it
}

// OpsRunner is a timer's figures in a row.
type Runner struct {
	Name    string        `json:"name"`
	Setting string        `json:"setting,omitempty"`
	Hot     report.Spread `json:"us"`               // µs a call, a figure a round: the same buffers again and again
	Cold    report.Spread `json:"us_cold,omitzero"` // buffers that together are four times the caches
	Failed  string        `json:"failed,omitempty"`
}

func (a *Runner) us(cold bool) report.Spread {
	if cold {
		return a.Cold
	}
	return a.Hot
}

// judgedCold says whether bars look at the runner's cold figures: ours, and the copies.
func (a *Runner) judgedCold() bool {
	return a.Name == Ours || family("memcpy", a.Name) || family("copy", a.Name)
}

// OpsResult is a row that was run.
type Result struct {
	Row
	Threads  int       `json:"threads,omitempty"` // cpu
	Bytes    int64     `json:"bytes"`             // touched by the work: each byte that it cannot do without, once
	Runners  []Runner  `json:"arms"`
	Checked  string    `json:"checked"`           // what was compared before ours was timed
	Skipped  string    `json:"skipped,omitempty"` // why the row was not run here
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

func (r *Result) runner(name string) *Runner {
	for i := range r.Runners {
		if r.Runners[i].Name == name {
			return &r.Runners[i]
		}
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

func (r *Result) whyNot(than string) string {
	for _, a := range r.Runners {
		if family(than, a.Name) && a.Failed != "" {
			return a.Name + ": " + a.Failed
		}
	}
	return than + " was not run"
}

// gbps is the rate at which the work's bytes went by.
func (r *Result) gbps(us float64) float64 {
	if us <= 0 {
		return 0
	}
	return float64(r.Bytes) / us / 1e3
}

// share is ours against the copy of the same run; 0 where one is missing.
func (r *Result) share(cold bool) report.Spread {
	ours, limit := r.runner(Ours), r.limit(cold)
	if ours == nil || limit == nil {
		return report.Spread{}
	}
	return ratios(limit.us(cold), ours.us(cold))
}

// OpsRows gives every row of a device, in the order of the tables, sweeps last.
func Rows(device string) []Row {
	if device == "cuda" {
		return append(rowsCUDA(), sweepRows(device)...)
	}
	return append(rowsCPU(), sweepRows(device)...)
}

// OpsRowsNamed picks rows: names, beginnings of names ("voxel"), or curve names; nil picks what is no sweep, or the quick ones.
func RowsNamed(device string, names []string, quick, sweep bool) ([]Row, error) {
	all := Rows(device)
	var out []Row
	used := map[string]bool{}
	for _, r := range all {
		switch {
		case names != nil:
			i := slices.IndexFunc(names, func(n string) bool { return r.Name == n || strings.HasPrefix(r.Name, n) || r.Curve == n })
			if i < 0 {
				continue
			}
			for _, n := range names {
				used[n] = used[n] || strings.HasPrefix(r.Name, n) || r.Curve == n
			}
		case quick && !r.Quick, r.Curve != "" && !sweep:
			continue
		}
		out = append(out, r)
	}
	for _, n := range names {
		if !used[n] {
			var known []string
			for _, r := range all {
				known = append(known, r.Name)
			}
			return nil, report.UnknownName("row", n, known)
		}
	}
	return out, nil
}
