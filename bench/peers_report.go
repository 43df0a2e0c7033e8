package bench

import (
	"fmt"
	"io"
	"strconv"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Markdown writes the report as docs/PERFORMANCE.md shows it.
func (p *PeerReport) Markdown(w io.Writer) { p.document().Markdown(w) }

// Write puts NAME.json, NAME.csv, NAME.md and NAME.html into dir (peers or formats), and the same of each family.
func (p *PeerReport) Write(dir string) error {
	if err := p.document().Write(dir, p.Name); err != nil {
		return err
	}
	for name, r := range p.Families {
		r.Command, r.Machine = p.Command, p.Machine
		if err := r.Write(dir, p.Name+"-"+name); err != nil {
			return err
		}
	}
	return nil
}

func (p *PeerReport) document() *report.Document {
	bars := &report.Table{Head: []string{"workload", "bar", "ours", "the other", "ratio", ""}}
	sheet := &report.Table{Head: []string{"workload", "bar", "metric", "arm", "other", "arm_median", "arm_min", "arm_max", "other_median", "other_min", "other_max", "ratio_median", "ratio_min", "ratio_max", "possible", "pass", "note"}}
	for _, row := range p.Verdicts {
		title := row.Title
		for _, v := range row.Verdicts {
			ratio := report.Short(v.Ratio)
			if len(v.Ratio.Raw) > 0 {
				ratio += "×"
			}
			bars.AddBar(v.Pass, title, v.Bar.Text, v.Bar.Metric.text(v.Ours), v.Bar.Metric.text(v.Than), ratio, v.word())
			title = ""
			rec := []string{row.Name, v.Bar.Text, string(v.Bar.Metric), v.Bar.Ours, v.Bar.Than}
			for _, s := range []report.Spread{v.Ours, v.Than, v.Ratio} {
				rec = append(rec, report.Cells(s)...)
			}
			sheet.Add(append(rec, report.Decimal(v.Possible), strconv.FormatBool(v.Pass), v.Note)...)
		}
	}
	d := &report.Document{Title: "robocache bench " + p.Name, Command: p.Command, Sheet: sheet, Raw: p, Sections: []report.Section{
		{Text: append(report.About(p.Command, p.Machine, "", p.Versions), "Median (min–max) of the repeats, runners interleaved, a fresh process each. Ratios are taken repeat by repeat, CPU s against CPU s unless the bar says otherwise; CPU s = CPU seconds of the process tree per 1,000 samples.")},
		{Table: bars},
	}}
	for _, f := range familiesOf(p.Rows) {
		if r := p.Families[f.name]; r != nil {
			title := "set " + f.set
			if f.window > 0 {
				title += fmt.Sprintf(", windows of %d", f.window)
			}
			if f.size > 0 {
				title += fmt.Sprintf(", %d×%d", f.size, f.size)
			}
			d.Sections = append(d.Sections, report.Section{Title: fmt.Sprintf("%s: batch %v, %v threads or workers, %v repeats", title, r.Workload["batch_size"], r.Workload["workers"], r.Workload["repeats"]), Table: r.table()})
		}
	}
	return d
}

// text gives a spread in the metric's unit.
func (m Metric) text(s report.Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	if m == Faults {
		return fmt.Sprintf("%.0f wrong", s.Max)
	}
	return report.Short(s) + map[Metric]string{CPU: " CPU s", Rate: " /s", Memory: " MB"}[m]
}

func (v Verdict) word() string {
	word := "**fail**"
	if v.Pass {
		word = "pass"
	} else if len(v.Ours.Raw) == 0 || v.Bar.Than != "" && len(v.Than.Raw) == 0 {
		word = "no figure"
	}
	if v.Note != "" {
		word += ": " + v.Note
	}
	return word
}
