package bench

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"
)

// metrics are what bars of runners in processes are in: of a run; NaN where it has none.
var metrics = map[string]struct {
	unit string
	of   func(o *Outcome) float64
}{
	// of the process tree, a 1,000 samples
	"cpu": {" CPU s", (*Outcome).cpuPer1000},
	// samples a second
	"rate": {" /s", (*Outcome).rate},
	// of robocache-bench ops
	"us": {" µs", nil},
	// peak PSS of the process tree
	"memory": {" MB", func(o *Outcome) float64 { return o.PSSPeakMB }},
	// frames, of those delivered
	"decoded": {
		"",
		func(o *Outcome) float64 { return float64(o.Decoded) / float64(max(o.Delivered, 1)) },
	},
	// distinct episodes a batch ÷ the ideal
	"randomness": {"", func(o *Outcome) float64 { return o.DistinctFrac / o.IdealFrac }},
	"faults":     {" wrong", func(o *Outcome) float64 { return float64(o.WrongFrames) }},
}

// spread gives the repeats in a metric.
func (r *Result) spread(metric string) report.Spread {
	var v []float64
	for i := range r.Runs {
		v = append(v, metrics[metric].of(&r.Runs[i]))
	}
	return report.SpreadOf(v)
}

// inMetric is a spread as a text, with its unit.
func inMetric(metric string, s report.Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	return report.Short(s) + metrics[metric].unit
}

// checkBar measures a bar on the results of one interleaved run.
func checkBar(b report.Bar, results []Result) report.Check {
	return b.Check(func(runner, _ string) (string, report.Spread, string) {
		i := slices.IndexFunc(results, func(r Result) bool { return r.Runner.Name == runner })
		if i < 0 {
			return runner, report.Spread{}, runner + " was not run"
		}
		why := results[i].fault()
		switch {
		case results[i].Failed != "":
			return runner, report.Spread{}, runner + " failed: " + results[i].Failed
		case len(results[i].Runs) == 0:
			why = "gave no figure"
		}
		if why != "" {
			why = runner + ": " + why
		}
		return runner, results[i].spread(b.Metric), why
	})
}

// fault says what is wrong with what a runner delivered: a fast runner that loses samples or shows
// the wrong frame is no timer.
func (r *Result) fault() string {
	checked, wrong := int64(0), int64(0)
	for _, o := range r.Runs {
		checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
		if o.CoverageMax > 0 && (o.CoverageMin != 1 || o.CoverageMax != 1) {
			return fmt.Sprintf(
				"a sample came %d to %d times an epoch",
				o.CoverageMin,
				o.CoverageMax,
			)
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
