package bench

import (
	"fmt"
	"math"
	"strconv"
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

// Bar is one clause of a row: ours against another runner, or against a number.
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

// Verdict says how a bar came out.
type Verdict struct {
	Bar   Bar           `json:"bar"`
	Ours  report.Spread `json:"ours"`
	Than  report.Spread `json:"than,omitzero"`
	Ratio report.Spread `json:"ratio"` // repeat by repeat, of runs that stood beside each other
	// Possible is the greatest ratio that the floor leaves; 0 where no floor was measured.
	Possible float64 `json:"possible,omitempty"`
	Pass     bool    `json:"pass"`
	Note     string  `json:"note,omitempty"` // why there is no figure, or what to know of it
}

// values gives the metric of each run.
func (m Metric) values(r *Result) []float64 {
	var out []float64
	for i := range r.Runs {
		o := &r.Runs[i]
		v := math.NaN()
		switch m {
		case CPU:
			v = 1000 * o.CPUSeconds / float64(o.Samples)
		case Rate:
			v = float64(o.Samples) / o.Seconds
		case Memory:
			v = o.PSSPeakMB
		case Decoded:
			v = float64(o.Decoded) / float64(max(o.Delivered, 1))
		case Randomness:
			if o.IdealFrac > 0 {
				v = o.DistinctFrac / o.IdealFrac
			}
		case Faults:
			v = float64(o.WrongFrames)
		}
		out = append(out, v)
	}
	return out
}

// Judge measures a bar on the results of one interleaved run.
func (b Bar) Judge(results []Result) Verdict {
	v := Verdict{Bar: b}
	ours := resultOf(results, b.Ours)
	if why := unusable(ours, b.Ours); why != "" {
		v.Note = why
		return v
	}
	mine := b.Metric.values(ours)
	v.Ours = report.SpreadOf(mine)
	if b.Metric == Faults {
		v.Note = ours.fault()
		v.Pass = v.Note == ""
		return v
	}
	if why := ours.fault(); why != "" {
		v.Note = b.Ours + ": " + why
		return v
	}
	if b.OverBudget > 0 {
		limit := ours.Runner.BudgetMB + b.OverBudget
		v.Note = fmt.Sprintf("budget %.0f MB", ours.Runner.BudgetMB)
		v.Pass = v.Ours.Median <= limit
		return v
	}
	if b.Than == "" {
		v.Pass = len(v.Ours.Raw) > 0 && within(v.Ours.Median, b)
		return v
	}
	than := resultOf(results, b.Than)
	if why := unusable(than, b.Than); why != "" {
		v.Note = why
		return v
	}
	theirs := b.Metric.values(than)
	v.Than = report.SpreadOf(theirs)
	n := min(len(mine), len(theirs))
	var ratios []float64
	for i := range n {
		ratios = append(ratios, b.ratio(mine[i], theirs[i]))
	}
	v.Ratio = report.SpreadOf(ratios)
	if len(v.Ratio.Raw) < n || n == 0 {
		v.Note = "too short to be measured: a longer --seconds"
		return v
	}
	v.Pass = within(v.Ratio.Median, b)
	if floor := resultOf(results, b.Floor); b.Floor != "" && unusable(floor, b.Floor) == "" {
		if cost := report.SpreadOf(b.Metric.values(floor)).Median; cost > 0 {
			v.Possible = v.Than.Median / cost
		}
	}
	var notes []string
	if why := than.fault(); why != "" {
		notes = append(notes, b.Than+": "+why)
	}
	if v.Pass && (!within(v.Ratio.Min, b) || !within(v.Ratio.Max, b)) {
		notes = append(notes, "within the spread: not every repeat passes")
	}
	if !v.Pass && v.Possible > 0 && b.AtLeast > v.Possible {
		notes = append(notes, fmt.Sprintf("beyond the limit: at most %.2g× is left above %s", v.Possible, b.Floor))
	}
	v.Note = strings.Join(notes, "; ")
	return v
}

// ratio is how many times better ours is (AtLeast), or how many times what the other takes ours takes (AtMost).
func (b Bar) ratio(ours, theirs float64) float64 {
	greater := b.Metric == Rate || b.Metric == Randomness
	if greater == (b.AtLeast > 0) {
		return ours / theirs
	}
	return theirs / ours
}

func within(v float64, b Bar) bool {
	if b.AtLeast > 0 {
		return v >= b.AtLeast
	}
	return v <= b.AtMost
}

func resultOf(results []Result, runner string) *Result {
	for i := range results {
		if results[i].Runner.Name == runner {
			return &results[i]
		}
	}
	return nil
}

func unusable(r *Result, name string) string {
	switch {
	case r == nil:
		return name + " was not run"
	case r.Failed != "":
		return name + " failed: " + r.Failed
	case len(r.Runs) == 0:
		return name + " gave no figure"
	}
	return ""
}

// fault says what is wrong with what a runner delivered: a fast runner that loses samples or shows the wrong frame is no timer.
func (r *Result) fault() string {
	checked, wrong := int64(0), int64(0)
	for i := range r.Runs {
		o := &r.Runs[i]
		checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
		if low, high := o.coverage(); high > 0 && (low != 1 || high != 1) {
			return fmt.Sprintf("a sample came %d to %d times an epoch", low, high)
		}
	}
	if r.Runner.Checked && checked == 0 && len(r.Runs) > 0 {
		return "no frame was checked"
	}
	if wrong > 0 {
		return strconv.FormatInt(wrong, 10) + " of " + strconv.FormatInt(checked, 10) + " frames are wrong"
	}
	return ""
}
