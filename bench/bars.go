package bench

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"
)

// barMetrics defines the unit of each metric of a bar, and its value for one run. The value is NaN if
// the run has none.
var barMetrics = map[string]struct {
	unit string
	of   func(o *Outcome) float64
}{
	// CPU seconds of the process tree per 1,000 samples
	"cpu": {" CPU s", (*Outcome).cpuPer1000},
	// samples per second
	"rate": {" /s", (*Outcome).rate},
	// used by robocache-bench ops only
	"us": {" µs", nil},
	// peak PSS of the process tree
	"memory": {" MB", func(o *Outcome) float64 { return o.PSSPeakMB }},
	// decoded frames ÷ delivered frames
	"decoded": {
		"",
		func(o *Outcome) float64 { return float64(o.Decoded) / float64(max(o.Delivered, 1)) },
	},
	// distinct episodes in a batch ÷ the expected number for a perfect shuffle
	"randomness": {"", func(o *Outcome) float64 { return o.DistinctFrac / o.IdealFrac }},
	"faults":     {" wrong", func(o *Outcome) float64 { return float64(o.WrongFrames) }},
}

// metricSpread returns the spread of a metric over the repeats.
func (r *Result) metricSpread(metric string) report.Spread {
	var v []float64
	for i := range r.Runs {
		v = append(v, barMetrics[metric].of(&r.Runs[i]))
	}
	return report.SpreadOf(v)
}

// formatMetric formats a spread with the unit of its metric.
func formatMetric(metric string, s report.Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	return report.Short(s) + barMetrics[metric].unit
}

// checkBar checks a bar with the results of one interleaved measurement.
func checkBar(b report.Bar, results []Result) report.Check {
	return b.Check(func(runner, _ string) (string, report.Spread, string) {
		i := slices.IndexFunc(results, func(r Result) bool { return r.Runner.Name == runner })
		if i < 0 {
			return runner, report.Spread{}, runner + " was not run"
		}
		why := results[i].deliveryFault()
		switch {
		case results[i].Failed != "":
			return runner, report.Spread{}, runner + " failed: " + results[i].Failed
		case len(results[i].Runs) == 0:
			why = "gave no figure"
		}
		if why != "" {
			why = runner + ": " + why
		}
		return runner, results[i].metricSpread(b.Metric), why
	})
}

// deliveryFault describes what is wrong with the deliveries of a runner. A fast runner that loses
// samples or delivers wrong frames is not a valid measurement.
func (r *Result) deliveryFault() string {
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
