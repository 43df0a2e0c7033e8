package ops

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

// Bar is one bar of a row, as its text says it:
//
//	≤ 2.6 µs            ours takes at most so long
//	≥ 97 % of copy      ours goes at so much of the rate of the fastest copy runner: a copy of the bytes that it must move
//	≥ 2.5× torch        ours is so many times as fast as the fastest runner whose name begins with torch
//	≤ 1.1× row NAME     ours takes at most so many times what ours takes in another row of the run
//
// followed by ", cold" where buffers go round that the caches cannot hold.
type Bar struct {
	Text  string  `json:"text"`
	Least bool    `json:"at_least"` // ≥
	Value float64 `json:"value"`    // µs, share (0.97), or times
	Unit  string  `json:"unit"`     // µs, share, times
	Than  string  `json:"than,omitempty"`
	Row   string  `json:"row,omitempty"`
	Cold  bool    `json:"cold,omitempty"`
}

var barText = regexp.MustCompile(`^([≥≤]) ([0-9.]+) ?(?:(µs)|% of (\S.*)|× row (\S.*)|× (\S.*))$`)

// ParseBar reads a bar's text.
func ParseBar(text string) (Bar, error) {
	rest, cold := strings.CutSuffix(text, ", cold")
	m := barText.FindStringSubmatch(rest)
	if m == nil {
		m = make([]string, 7)
	}
	v, err := strconv.ParseFloat(m[2], 64)
	least := m[1] == "≥"
	if err != nil || least == (m[3]+m[5] != "") {
		return Bar{}, &robocache.Error{Class: robocache.ErrMisuse, Op: "bench ops", Msg: "not a bar: " + strconv.Quote(text), Want: "≤ N µs, ≥ N % of RUNNER, ≥ N× RUNNER, or ≤ N× row NAME"}
	}
	b := Bar{Text: text, Least: least, Value: v, Unit: "times", Than: m[4] + m[6], Row: m[5], Cold: cold}
	switch {
	case m[3] != "":
		b.Unit = "µs"
	case m[4] != "":
		b.Unit, b.Value = "share", v/100
	}
	return b, nil
}

// Check says how a bar came out.
type Check struct {
	Bar      Bar           `json:"bar"`
	Figure   report.Spread `json:"figure"`          // in the bar's unit; ratios and shares round by round
	Other    string        `json:"other,omitempty"` // the runner that it was held against
	OtherUS  report.Spread `json:"other_us,omitzero"`
	Judged   bool          `json:"judged"` // false: there is no figure, Note says why
	Pass     bool          `json:"pass"`
	Possible float64       `json:"possible,omitempty"` // in the bar's unit: what moving the bytes at the copy's rate would give
	Note     string        `json:"note,omitempty"`
}

func (b Bar) within(v float64) bool { return v == b.Value || b.Least == (v > b.Value) }

// check measures the bar on a row's result; row finds those of the same threads.
func (b Bar) check(r *Result, row func(name string) *Result) Check {
	c := Check{Bar: b, Note: r.Skipped}
	if c.Note == "" {
		c.Note = r.missing(Ours, b.Cold)
	}
	if c.Note != "" {
		return c
	}
	mine, limit := *r.runner(Ours).us(b.Cold), r.limit(b.Cold)
	switch {
	case b.Unit == "µs":
		c.Figure = mine
		if limit != nil {
			c.Possible = limit.us(b.Cold).Median
		}
	case b.Row != "":
		other := row(b.Row)
		if other == nil || other.missing(Ours, b.Cold) != "" {
			c.Note = b.Row + " was not run"
			return c
		}
		c.Other, c.OtherUS = b.Row, *other.runner(Ours).us(b.Cold)
		c.Figure = report.Ratios(mine, c.OtherUS)
	default:
		than := r.fastest(b.Than, b.Cold)
		if than == nil {
			c.Note = r.missing(b.Than, b.Cold)
			return c
		}
		c.Other, c.OtherUS = than.Name, *than.us(b.Cold)
		c.Figure = report.Ratios(c.OtherUS, mine)
		if limit != nil && b.Unit == "times" {
			c.Possible = c.OtherUS.Median / limit.us(b.Cold).Median
		}
	}
	if len(c.Figure.Raw) == 0 {
		c.Note = "no figure"
		return c
	}
	c.Judged = true
	c.Pass, c.Note = c.Figure.Passes(b.within)
	if !c.Pass && c.Possible > 0 && !b.within(c.Possible) {
		c.Note = "beyond a plain copy of the bytes: " + b.number(c.Possible)
	}
	return c
}

// number gives a figure in the bar's unit.
func (b Bar) number(x float64) string { return b.text(report.SpreadOf([]float64{x})) }

func (b Bar) text(s report.Spread) string {
	unit := map[string]string{"share": " %", "µs": " µs", "times": "×"}[b.Unit]
	if len(s.Raw) == 0 {
		return "–"
	}
	if b.Unit == "share" {
		s.Min, s.Median, s.Max = 100*s.Min, 100*s.Median, 100*s.Max
	}
	return report.Short(s) + unit
}

func (c Check) word() string {
	word := map[bool]string{true: "met", false: "**missed**"}[c.Pass]
	if !c.Judged {
		word = "no figure"
	}
	if c.Note != "" {
		word += ": " + c.Note
	}
	return word
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
	Threads int      `json:"threads,omitempty"` // cpu
	Bytes   int64    `json:"bytes"`             // touched by the work: each byte that it cannot do without, once
	Runners []Runner `json:"arms"`
	Checked string   `json:"checked"`           // what was compared before ours was timed
	Skipped string   `json:"skipped,omitempty"` // why the row was not run here
	Checks  []Check  `json:"verdicts,omitempty"`
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
