package defects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

const (
	leastRecall    = 0.95
	mostFalseShare = 0.02
)

// Report is the result of Run.
type Report struct {
	Command string         `json:"command"`
	Machine any            `json:"machine"`
	Options Options        `json:"options"`
	Formats []FormatResult `json:"formats"`
}

// FormatResult counts the findings in one format.
type FormatResult struct {
	Format  string        `json:"format"`
	Seconds float64       `json:"seconds"`
	Clean   int           `json:"clean"`
	Defects []DefectCount `json:"defects"`
	// FalseAlarms is the number of clean episodes with any finding.
	FalseAlarms int            `json:"false_alarms"`
	ByMetric    map[string]int `json:"false_alarms_by_metric"`
}

// DefectCount counts the planted episodes of a defect by size.
type DefectCount struct {
	Defect   string    `json:"defect"`
	IsSpread bool      `json:"is_spread"` // sizes are spreads, not frames
	Sizes    []float64 `json:"sizes"`
	Planted  []int     `json:"planted"`
	Found    []int     `json:"found"` // by a metric that is meant for the defect
	Any      []int     `json:"any"`   // by any metric
	// FalseAlarms is the number of clean episodes with a finding of one of the metrics.
	FalseAlarms int `json:"false_alarms"`
}

func sumOf(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// recall returns the share of all planted episodes that were found.
func (f *FormatResult) recall() float64 {
	found, planted := 0, 0
	for _, d := range f.Defects {
		found, planted = found+sumOf(d.Found), planted+sumOf(d.Planted)
	}
	return float64(found) / float64(max(planted, 1))
}

// falseAlarms returns the share of the clean episodes with a finding.
func (f *FormatResult) falseAlarms() float64 {
	return float64(f.FalseAlarms) / float64(max(f.Clean, 1))
}

// Document returns the report for people. A missed bar is a defect below leastRecall in a format,
// or false alarms above mostFalseShare.
func (r *Report) Document() *report.Document {
	d := &report.Document{
		Name: "quality", Title: "robocache-bench quality", Command: r.Command, Raw: r,
	}
	head := []string{"defect", "sizes"}
	for _, f := range r.Formats {
		head = append(head, f.Format)
	}
	table := &report.Table{Head: head}
	for k := range allDefects {
		unit := "frames"
		if allDefects[k].measure != nil {
			unit = "spreads"
		}
		cells := []string{
			allDefects[k].name,
			fmt.Sprintf("%v %s", strings.Trim(fmt.Sprint(allDefects[k].sizesOf()), "[]"), unit),
		}
		passes := true
		for _, f := range r.Formats {
			c := f.Defects[k]
			var parts []string
			for size, planted := range c.Planted {
				parts = append(parts, fmt.Sprintf("%d/%d", c.Found[size], planted))
			}
			share := float64(c.FalseAlarms) / float64(max(f.Clean, 1))
			cells = append(
				cells,
				fmt.Sprintf("%s, false %.1f %%", strings.Join(parts, " "), 100*share),
			)
			recall := float64(sumOf(c.Found)) / float64(max(sumOf(c.Planted), 1))
			if recall < leastRecall || share > mostFalseShare {
				passes = false
				d.Missed = append(d.Missed, fmt.Sprintf("%s in %s: recall %.2f, false alarms %.3f",
					c.Defect, f.Format, recall, share))
			}
		}
		table.AddBar(passes, cells...)
	}
	total := []string{"all", ""}
	var notes []string
	for _, f := range r.Formats {
		total = append(total, fmt.Sprintf("recall %.3f, false %.1f %% (%.0f s)",
			f.recall(), 100*f.falseAlarms(), f.Seconds))
		for _, m := range slices.Sorted(maps.Keys(f.ByMetric)) {
			notes = append(notes, fmt.Sprintf("%s: %s %d", f.Format, m, f.ByMetric[m]))
		}
	}
	table.Add(total...)
	d.Sheet = table
	d.Add(
		"",
		table,
		fmt.Sprintf(
			"%d clean episodes; %d planted for each defect and size. Found / planted by size, "+
				"by a metric that is meant for the defect, and the share of clean episodes with a finding "+
				"of these metrics. The last row counts clean episodes with any finding. Bars: recall ≥ "+
				"%.2f, false alarms ≤ %.0f %%.",
			r.Options.Clean,
			r.Options.Repeats,
			leastRecall,
			100*mostFalseShare,
		),
		"If a quantity is normally distributed and nothing else changes, no detector with 2 % false "+
			"alarms finds more than 48 % of defects of 2 spreads, and 97 % of 4 spreads.",
	)
	if notes != nil {
		d.Add("False alarms by metric", nil, strings.Join(notes, "; "))
	}
	return d.WithRaw()
}
