package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Metric is what a bar looks at.
type Metric string

// The metrics. Rate and Randomness are better when greater, CPU and Memory when smaller.
const (
	CPU        Metric = "cpu"        // CPU seconds of the process tree a 1,000 samples
	Rate       Metric = "rate"       // samples a second
	Memory     Metric = "memory"     // peak PSS of the process tree, MB
	Decoded    Metric = "decoded"    // frames decoded ÷ frames delivered
	Randomness Metric = "randomness" // distinct episodes a batch ÷ the ideal
	Faults     Metric = "faults"     // wrong frames, samples lost or doubled
)

// values gives the metric of each run; NaN where a run has none.
func (m Metric) values(r *Result) (out []float64) {
	for _, o := range r.Runs {
		out = append(out, map[Metric]float64{CPU: o.cpuPer1000(), Rate: o.rate(), Memory: o.PSSPeakMB, Decoded: float64(o.Decoded) / float64(max(o.Delivered, 1)), Randomness: o.DistinctFrac / o.IdealFrac,
			Faults: float64(o.WrongFrames)}[m])
	}
	return out
}

// text gives a spread in the metric's unit.
func (m Metric) text(s report.Spread) string {
	switch {
	case len(s.Raw) == 0:
		return "–"
	case m == Faults:
		return fmt.Sprintf("%.0f wrong", s.Max)
	}
	return report.Short(s) + map[Metric]string{CPU: " CPU s", Rate: " /s", Memory: " MB"}[m]
}

// Bar is one clause of a case: ours against another runner, or against a number.
type Bar struct {
	Text    string  `json:"text"`
	Ours    string  `json:"ours"`
	Than    string  `json:"than,omitempty"`  // "": a number by itself
	Floor   string  `json:"floor,omitempty"` // the runner whose cost nothing can go below: what it leaves is shown
	Metric  Metric  `json:"metric"`
	AtLeast float64 `json:"at_least,omitempty"` // so many times better than Than
	AtMost  float64 `json:"at_most,omitempty"`  // at most so many times what Than takes
	// OverBudget: at most so many MB above the runner's own memory budget.
	OverBudget float64 `json:"over_budget_mb,omitempty"`
}

// Check says how a bar came out.
type Check struct {
	Bar   Bar           `json:"bar"`
	Ours  report.Spread `json:"ours"`
	Than  report.Spread `json:"than,omitzero"`
	Ratio report.Spread `json:"ratio"` // repeat by repeat, of runs that stood beside each other
	// Possible is the greatest ratio that the floor leaves; 0 where no floor was measured.
	Possible float64 `json:"possible,omitempty"`
	Pass     bool    `json:"pass"`
	Note     string  `json:"note,omitempty"` // why there is no figure, or what to know of it
}

// check measures a bar on the results of one interleaved run.
func (b Bar) check(results []Result) Check {
	c := Check{Bar: b}
	ours, why := resultOf(results, b.Ours)
	if c.Note = why; why != "" {
		return c
	}
	mine := b.Metric.values(ours)
	c.Ours = report.SpreadOf(mine)
	switch fault := ours.fault(); {
	case b.Metric == Faults:
		c.Note, c.Pass = fault, fault == ""
		return c
	case fault != "":
		c.Note = b.Ours + ": " + fault
		return c
	case b.OverBudget > 0:
		c.Note, c.Pass = fmt.Sprintf("budget %.0f MB", ours.Runner.BudgetMB), c.Ours.Median <= ours.Runner.BudgetMB+b.OverBudget
		return c
	case b.Than == "":
		c.Pass = len(c.Ours.Raw) > 0 && b.within(c.Ours.Median)
		return c
	}
	than, why := resultOf(results, b.Than)
	if c.Note = why; why != "" {
		return c
	}
	theirs := b.Metric.values(than)
	c.Than = report.SpreadOf(theirs)
	n := min(len(mine), len(theirs))
	ratios := make([]float64, n)
	for i := range n {
		// How many times better ours is (AtLeast), or how many times what the other takes ours takes (AtMost).
		if ratios[i] = theirs[i] / mine[i]; (b.Metric == Rate || b.Metric == Randomness) == (b.AtLeast > 0) {
			ratios[i] = mine[i] / theirs[i]
		}
	}
	if c.Ratio = report.SpreadOf(ratios); len(c.Ratio.Raw) < n || n == 0 {
		c.Note = "too short to be measured: a longer --seconds"
		return c
	}
	if floor, why := resultOf(results, b.Floor); why == "" {
		if cost := report.SpreadOf(b.Metric.values(floor)).Median; cost > 0 {
			c.Possible = c.Than.Median / cost
		}
	}
	var spread, fault, beyond string
	c.Pass, spread = c.Ratio.Passes(b.within)
	if fault = than.fault(); fault != "" {
		fault = b.Than + ": " + fault
	}
	if !c.Pass && c.Possible > 0 && b.AtLeast > c.Possible {
		beyond = fmt.Sprintf("beyond the limit: at most %.2g× is left above %s", c.Possible, b.Floor)
	}
	c.Note = strings.Join(slices.DeleteFunc([]string{fault, spread, beyond}, func(s string) bool { return s == "" }), "; ")
	return c
}

func (b Bar) within(v float64) bool {
	if b.AtLeast > 0 {
		return v >= b.AtLeast
	}
	return v <= b.AtMost
}

func (c Check) word() string {
	word := "**fail**"
	if c.Pass {
		word = "pass"
	} else if len(c.Ours.Raw) == 0 || c.Bar.Than != "" && len(c.Than.Raw) == 0 {
		word = "no figure"
	}
	if c.Note != "" {
		word += ": " + c.Note
	}
	return word
}

// resultOf finds a runner's result, or why it cannot be used.
func resultOf(results []Result, runner string) (r *Result, why string) {
	i := slices.IndexFunc(results, func(r Result) bool { return r.Runner.Name == runner })
	switch {
	case i < 0:
		return nil, runner + " was not run"
	case results[i].Failed != "":
		why = runner + " failed: " + results[i].Failed
	case len(results[i].Runs) == 0:
		why = runner + " gave no figure"
	}
	return &results[i], why
}

// fault says what is wrong with what a runner delivered: a fast runner that loses samples or shows the wrong frame is no timer.
func (r *Result) fault() string {
	checked, wrong := int64(0), int64(0)
	for _, o := range r.Runs {
		checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
		if o.CoverageMax > 0 && (o.CoverageMin != 1 || o.CoverageMax != 1) {
			return fmt.Sprintf("a sample came %d to %d times an epoch", o.CoverageMin, o.CoverageMax)
		}
	}
	switch {
	case r.Runner.Checked && checked == 0 && len(r.Runs) > 0:
		return "no frame was checked"
	case wrong > 0:
		return fmt.Sprintf("%d of %d frames are wrong", wrong, checked)
	}
	return ""
}
