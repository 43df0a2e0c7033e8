package bench

import (
	"slices"
	"strings"
)

// OpsOurs is the name of our runner.
const OpsOurs = "robocache"

// OpsRow is one line of `bench ops`: a workload on a device, and what is asked of ours.
type OpsRow struct {
	Name   string   `json:"name"` // as in --rows
	Title  string   `json:"title"`
	Device string   `json:"device"` // cpu, cuda
	Work   OpsWork  `json:"work"`
	Bars   []OpsBar `json:"bars,omitempty"`
	Curve  string   `json:"curve,omitempty"` // the sweep that it is a point of
	Quick  bool     `json:"-"`               // --quick runs it
}

// OpsRunner is a timer's figures in a row.
type OpsRunner struct {
	Name    string `json:"name"`
	Setting string `json:"setting,omitempty"`
	Hot     Spread `json:"us"`               // µs a call, a figure a round: the same buffers again and again
	Cold    Spread `json:"us_cold,omitzero"` // buffers that together are four times the caches
	Failed  string `json:"failed,omitempty"`
}

func (a *OpsRunner) us(cold bool) Spread {
	if cold {
		return a.Cold
	}
	return a.Hot
}

// judgedCold says whether bars look at the runner's cold figures: ours, and the copies.
func (a *OpsRunner) judgedCold() bool {
	return a.Name == OpsOurs || family("memcpy", a.Name) || family("copy", a.Name)
}

// OpsResult is a row that was run.
type OpsResult struct {
	OpsRow
	Threads  int          `json:"threads,omitempty"` // cpu
	Bytes    int64        `json:"bytes"`             // touched by the work: each byte that it cannot do without, once
	Runners  []OpsRunner  `json:"arms"`
	Checked  string       `json:"checked"`           // what was compared before ours was timed
	Skipped  string       `json:"skipped,omitempty"` // why the row was not run here
	Verdicts []OpsVerdict `json:"verdicts,omitempty"`
}

func (r *OpsResult) runner(name string) *OpsRunner {
	for i := range r.Runners {
		if r.Runners[i].Name == name {
			return &r.Runners[i]
		}
	}
	return nil
}

// fastest is the runner of a family with the least median.
func (r *OpsResult) fastest(than string, cold bool) *OpsRunner {
	var best *OpsRunner
	for i := range r.Runners {
		a := &r.Runners[i]
		if family(than, a.Name) && a.Failed == "" && len(a.us(cold).Raw) > 0 && (best == nil || a.us(cold).Median < best.us(cold).Median) {
			best = a
		}
	}
	return best
}

// limit is the copy of as many bytes, of the same run.
func (r *OpsResult) limit(cold bool) *OpsRunner {
	if a := r.fastest("copy", cold); a != nil {
		return a
	}
	return r.fastest("memcpy", cold)
}

func (r *OpsResult) whyNot(than string) string {
	for _, a := range r.Runners {
		if family(than, a.Name) && a.Failed != "" {
			return a.Name + ": " + a.Failed
		}
	}
	return than + " was not run"
}

// gbps is the rate at which the work's bytes went by.
func (r *OpsResult) gbps(us float64) float64 {
	if us <= 0 {
		return 0
	}
	return float64(r.Bytes) / us / 1e3
}

// share is ours against the copy of the same run; 0 where one is missing.
func (r *OpsResult) share(cold bool) Spread {
	ours, limit := r.runner(OpsOurs), r.limit(cold)
	if ours == nil || limit == nil {
		return Spread{}
	}
	return ratios(limit.us(cold), ours.us(cold))
}

// OpsRows gives every row of a device, in the order of the tables, sweeps last.
func OpsRows(device string) []OpsRow {
	if device == "cuda" {
		return append(opsRowsCUDA(), opsSweeps(device)...)
	}
	return append(opsRowsCPU(), opsSweeps(device)...)
}

// OpsRowsNamed picks rows: names, beginnings of names ("voxel"), or curve names; nil picks what is no sweep, or the quick ones.
func OpsRowsNamed(device string, names []string, quick, sweep bool) ([]OpsRow, error) {
	all := OpsRows(device)
	var out []OpsRow
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
			return nil, unknownName("row", n, known)
		}
	}
	return out, nil
}
