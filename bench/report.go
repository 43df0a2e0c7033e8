package bench

import (
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Report is a finished measurement of runners that took turns.
type Report struct {
	Name     string         `json:"-"` // of its files
	Title    string         `json:"title"`
	Command  string         `json:"command"`
	Workload map[string]any `json:"workload"`
	Machine  report.Machine `json:"machine"`
	Unit     string         `json:"unit"` // what a sample is
	Results  []Result       `json:"results"`
}

// Write puts NAME.json, NAME.csv, NAME.md and NAME.html into dir, and the plots.
func (r *Report) Write(dir string) error {
	name := r.Name
	d := &report.Document{Title: r.Title, Command: r.Command, Raw: r}
	d.Sheet = &report.Table{Head: []string{"arm", "setting", "run", "samples", "seconds", "cpu_seconds", "samples_per_s", "cpu_s_per_1000_samples", "open_s", "first_batch_latency_s", "pss_peak_mb", "shuffle_randomness_frac", "randomness_ideal", "order_sha256"}}
	rates := &report.Figure{Name: name + "-rate", Title: r.Unit + " a second", Unit: "/s"}
	cpu := &report.Figure{Name: name + "-cpu", Title: "CPU seconds a 1,000 " + r.Unit, Unit: "CPU s"}
	for i := range r.Results {
		x := &r.Results[i]
		for k, o := range x.Runs {
			d.Sheet.Add(x.Runner.Name, x.Runner.Setting, strconv.Itoa(k), strconv.FormatInt(o.Samples, 10), report.Decimal(o.Seconds), report.Decimal(o.CPUSeconds), report.Decimal(o.rate()), report.Decimal(o.cpuPer1000()),
				report.Decimal(o.OpenS), report.Decimal(o.FirstBatchS), report.Decimal(o.PSSPeakMB), report.Decimal(o.DistinctFrac), report.Decimal(o.IdealFrac), o.OrderSHA256)
		}
		rates.Set("", x.Runner.Name, x.SamplesPerS)
		cpu.Set("", x.Runner.Name, x.CPUPer1000)
	}
	d.Sections = []report.Section{
		{Text: report.About(r.Command, r.Machine, "", nil)},
		{Text: []string{"Median (min–max) of the repeats."}, Table: r.table()},
		{Figure: rates},
		{Figure: cpu},
		report.Raw(r),
	}
	return d.Write(dir, name)
}

// Table lists the runners of the report for a terminal.
func (r *Report) Table() [][]string { return r.table().All() }

func (r *Report) table() *report.Table {
	t := &report.Table{Head: []string{"runner", "setting", r.Unit + "/s", "CPU s", "first batch s", "peak PSS MB", "of ideal shuffle", "wrong of checked", "times an epoch", "order"}}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Failed != "" {
			t.Add(x.Runner.Name, x.Runner.Setting, "failed: "+x.Failed, "", "", "", "", "", "", "")
			continue
		}
		checked, wrong := int64(0), int64(0)
		times, order, right, shuffle, first := "–", "–", "–", "–", "–"
		for _, o := range x.Runs {
			checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
			switch {
			case o.CoverageMax == 0:
			case o.CoverageMin == o.CoverageMax:
				times = fmt.Sprint(o.CoverageMin)
			default:
				times = fmt.Sprintf("%d–%d", o.CoverageMin, o.CoverageMax)
			}
			if o.OrderSHA256 != "" {
				order = o.OrderSHA256[:8]
			}
		}
		if checked > 0 {
			right = fmt.Sprintf("%d of %d", wrong, checked)
		}
		if s := report.SpreadOf(Randomness.values(x)); len(s.Raw) > 0 {
			shuffle = fmt.Sprintf("%.2f", s.Median)
		}
		if x.FirstBatchS.Max > 0 {
			first = report.Short(x.FirstBatchS)
		}
		t.Add(x.Runner.Name, x.Runner.Setting, report.Short(x.SamplesPerS), report.Short(x.CPUPer1000), first, report.Short(x.PSSPeakMB), shuffle, right, times, order)
	}
	return t
}
