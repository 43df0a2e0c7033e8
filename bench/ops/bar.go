package ops

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache"
)

// OpsBar is one bar of a row, as its text says it:
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

// ParseOpsBar reads a bar's text.
func ParseBar(text string) (Bar, error) {
	b := Bar{Text: text}
	bad := func(want string) (Bar, error) {
		return Bar{}, &robocache.Error{Class: robocache.ErrMisuse, Op: "bench ops", Msg: "not a bar: " + strconv.Quote(text), Want: want}
	}
	rest, cold := strings.CutSuffix(strings.TrimSpace(text), ", cold")
	b.Cold = cold
	var ok bool
	if rest, ok = strings.CutPrefix(rest, "≥"); ok {
		b.Least = true
	} else if rest, ok = strings.CutPrefix(rest, "≤"); !ok {
		return bad("≤ or ≥ first")
	}
	rest = strings.TrimSpace(rest)
	end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end <= 0 {
		return bad("a number and what it is of")
	}
	v, err := strconv.ParseFloat(rest[:end], 64)
	if err != nil {
		return bad("a number")
	}
	b.Value = v
	rest = strings.TrimSpace(rest[end:])
	switch {
	case rest == "µs" && !b.Least:
		b.Unit = "µs"
	case strings.HasPrefix(rest, "% of ") && b.Least:
		b.Unit, b.Value, b.Than = "share", v/100, rest[len("% of "):]
	case strings.HasPrefix(rest, "× row ") && !b.Least:
		b.Unit, b.Row = "times", rest[len("× row "):]
	case strings.HasPrefix(rest, "× ") && b.Least:
		b.Unit, b.Than = "times", rest[len("× "):]
	default:
		return bad("≤ N µs, ≥ N % of RUNNER, ≥ N× RUNNER, or ≤ N× row NAME")
	}
	if b.Unit != "µs" && b.Than == "" && b.Row == "" {
		return bad("the name of a runner or a row")
	}
	return b, nil
}

func barsOf(texts ...string) []Bar {
	var out []Bar
	for _, t := range texts {
		b, err := ParseBar(t)
		if err != nil {
			panic(err) // the table is in this file's neighbours, and a test reads all of it
		}
		out = append(out, b)
	}
	return out
}

// OpsVerdict says how a bar came out.
type Verdict struct {
	Bar      Bar           `json:"bar"`
	Figure   report.Spread `json:"figure"`          // in the bar's unit; ratios and shares round by round
	Other    string        `json:"other,omitempty"` // the runner that it was held against
	OtherUS  report.Spread `json:"other_us,omitzero"`
	Judged   bool          `json:"judged"` // false: there is no figure, Note says why
	Pass     bool          `json:"pass"`
	Possible float64       `json:"possible,omitempty"` // in the bar's unit: what moving the bytes at the copy's rate would give
	Note     string        `json:"note,omitempty"`
}

// family says whether a runner is one of those that a bar names: "torch" is "torch eager" and "torch.compile".
func family(than, runner string) bool {
	return runner == than || strings.HasPrefix(runner, than+" ") || strings.HasPrefix(runner, than+".")
}

// Judge measures the bar on a row's result; rows finds those of the same threads.
func (b Bar) Judge(r *Result, rows func(name string) *Result) Verdict {
	v := Verdict{Bar: b}
	ours := r.runner(Ours)
	if r.Skipped != "" {
		v.Note = r.Skipped
		return v
	}
	if ours == nil || ours.Failed != "" || len(ours.us(b.Cold).Raw) == 0 {
		v.Note = "no figure of ours"
		if ours != nil && ours.Failed != "" {
			v.Note = ours.Failed
		}
		return v
	}
	mine := ours.us(b.Cold)
	limit := r.fastest("copy", b.Cold)
	if limit == nil {
		limit = r.fastest("memcpy", b.Cold)
	}
	switch {
	case b.Unit == "µs":
		v.Figure = mine
		if limit != nil {
			v.Possible = limit.us(b.Cold).Median
		}
	case b.Row != "":
		var than *Runner
		if other := rows(b.Row); other != nil {
			than = other.runner(Ours)
		}
		if than == nil || len(than.us(b.Cold).Raw) == 0 {
			v.Note = b.Row + " was not run"
			return v
		}
		v.Other, v.OtherUS = b.Row, than.us(b.Cold)
		v.Figure = ratios(mine, v.OtherUS)
	default:
		than := r.fastest(b.Than, b.Cold)
		if than == nil {
			v.Note = r.whyNot(b.Than)
			return v
		}
		v.Other, v.OtherUS = than.Name, than.us(b.Cold)
		v.Figure = ratios(v.OtherUS, mine)
		if limit != nil && b.Unit == "times" {
			v.Possible = v.OtherUS.Median / limit.us(b.Cold).Median
		}
	}
	if len(v.Figure.Raw) == 0 {
		v.Note = "no figure"
		return v
	}
	v.Judged = true
	pass := func(x float64) bool {
		if b.Least {
			return x >= b.Value
		}
		return x <= b.Value
	}
	v.Pass = pass(v.Figure.Median)
	switch {
	case v.Pass && (!pass(v.Figure.Min) || !pass(v.Figure.Max)):
		v.Note = "within the spread: not every round passes"
	case !v.Pass && v.Possible > 0 && !pass(v.Possible):
		v.Note = "beyond a plain copy of the bytes: " + b.number(v.Possible)
	}
	return v
}

// number gives a figure in the bar's unit.
func (b Bar) number(x float64) string {
	switch b.Unit {
	case "share":
		return report.Digits(100*x) + " %"
	case "µs":
		return report.Digits(x) + " µs"
	}
	return report.Digits(x) + "×"
}

func (b Bar) text(s report.Spread) string {
	switch {
	case len(s.Raw) == 0 || math.IsNaN(s.Median):
		return "–"
	case s.Min == s.Max:
		return b.number(s.Median)
	case b.Unit == "share":
		return fmt.Sprintf("%s (%s–%s) %%", report.Digits(100*s.Median), report.Digits(100*s.Min), report.Digits(100*s.Max))
	}
	return report.Short(s) + map[string]string{"µs": " µs", "times": "×"}[b.Unit]
}

// ratios divides round by round: figures that stood beside each other.
func ratios(a, b report.Spread) report.Spread {
	var out []float64
	for i := range min(len(a.Raw), len(b.Raw)) {
		out = append(out, a.Raw[i]/b.Raw[i])
	}
	return report.SpreadOf(out)
}
