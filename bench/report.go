package bench

import (
	"cmp"
	"fmt"
	"strconv"
)

// Report is a finished measurement of runners that took turns.
type Report struct {
	Title    string         `json:"title"`
	Command  string         `json:"command"`
	Workload map[string]any `json:"workload"`
	Machine  Machine        `json:"machine"`
	Unit     string         `json:"unit"` // what a sample is
	Results  []Result       `json:"results"`
}

// Write puts NAME.json, NAME.csv, NAME.md and NAME.html into dir, and the plots.
func (r *Report) Write(dir, name string) error {
	d := &document{Title: r.Title, Command: r.Command, Raw: r}
	d.Sheet = &table{Head: []string{"arm", "setting", "run", "samples", "seconds", "cpu_seconds", "samples_per_s", "cpu_s_per_1000_samples", "open_s", "first_batch_latency_s", "pss_peak_mb", "shuffle_randomness_frac", "randomness_ideal", "order_sha256"}}
	var rates, cpu columns
	for i := range r.Results {
		x := &r.Results[i]
		for k, o := range x.Runs {
			d.Sheet.add(x.Runner.Name, x.Runner.Setting, strconv.Itoa(k), strconv.FormatInt(o.Samples, 10), decimal(o.Seconds), decimal(o.CPUSeconds), decimal(o.rate()), decimal(o.cpuPer1000()),
				decimal(o.OpenS), decimal(o.FirstBatchS), decimal(o.PSSPeakMB), decimal(o.DistinctFrac), decimal(o.IdealFrac), o.OrderSHA256)
		}
		rates.set("", x.Runner.Name, x.SamplesPerS)
		cpu.set("", x.Runner.Name, x.CPUPer1000)
	}
	d.Sections = []section{
		{Text: about(r.Command, r.Machine, "", nil)},
		{Text: []string{"Median (min–max) of the repeats."}, Table: r.table()},
		{Figure: rates.figure(name+"-rate", r.Unit+" a second", "/s")},
		{Figure: cpu.figure(name+"-cpu", "CPU seconds a 1,000 "+r.Unit, "CPU s")},
		raw(r),
	}
	return d.write(dir, name)
}

// Table lists the runners of the report for a terminal.
func (r *Report) Table() [][]string {
	t := r.table()
	return append([][]string{t.Head}, t.Rows...)
}

func (r *Report) table() *table {
	t := &table{Head: []string{"runner", "setting", r.Unit + "/s", "CPU s", "first batch s", "peak PSS MB", "of ideal shuffle", "wrong of checked", "times an epoch", "order"}}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Failed != "" {
			t.add(x.Runner.Name, x.Runner.Setting, "failed: "+x.Failed, "", "", "", "", "", "", "")
			continue
		}
		checked, wrong := int64(0), int64(0)
		times, order, right, shuffle, first := "–", "", "–", "–", "–"
		for k := range x.Runs {
			o := &x.Runs[k]
			checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
			if low, high := o.coverage(); high > 0 {
				times = fmt.Sprintf("%d–%d", low, high)
				if low == high {
					times = fmt.Sprint(low)
				}
			}
			order = cmp.Or(o.OrderSHA256, order)
		}
		if checked > 0 {
			right = fmt.Sprintf("%d of %d", wrong, checked)
		}
		if s := spreadOf(Randomness.values(x)); len(s.Raw) > 0 {
			shuffle = fmt.Sprintf("%.2f", s.Median)
		}
		if x.FirstBatchS.Max > 0 {
			first = short(x.FirstBatchS)
		}
		t.add(x.Runner.Name, x.Runner.Setting, short(x.SamplesPerS), short(x.CPUPer1000), first, short(x.PSSPeakMB), shuffle, right, times, cmp.Or(order[:min(8, len(order))], "–"))
	}
	return t
}
