package ops

import (
	"cmp"
	"fmt"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"github.com/goatnote-inc/robocache/bench/report"
)

func (p *Report) name() string {
	if p.Device != nil {
		return "ops-cuda"
	}
	return "ops-cpu"
}

// Document is ops-DEVICE.json and so on, and the plots: the bars, then every runner's figures, then the curves. It is wrong where ours gave a wrong result or none.
func (p *Report) Document() *report.Document {
	device := ""
	if p.Device != nil {
		device = fmt.Sprintf("; %s, %s, image %s", p.Device.Name, p.Device.Driver, p.Device.Image)
	}
	text := fmt.Sprintf("µs a call, median (min–max) of %d rounds in which the runners took turns. Hot: the same buffers again and again; cold: buffers that together are four times the cache of %d MiB.", p.Rounds, p.Cache>>20)
	if p.Clock == "cpu" {
		text = "Of the thread's own CPU time, since the machine was not quiet. " + text
	}
	d := &report.Document{Name: p.name(), Title: "robocache bench ops", Command: p.Command, Raw: p}
	d.Add("", nil, append(report.About(p.Command, p.Machine, device, p.Versions), text)...)
	d.Plot(p.figures()...)
	d.Sheet = &report.Table{Head: []string{"row", "curve", "device", "threads", "bytes", "arm", "setting", "us", "us_min", "us_max", "gb_per_s", "us_cold", "us_cold_min", "us_cold_max", "gb_per_s_cold", "failed"}}
	bars := &report.Table{Head: []string{"workload", "threads", "ours µs", "bar", "figure", "beside it, µs", ""}}
	for _, r := range p.Rows {
		if a := r.runner(Ours); a != nil && a.Failed != "" {
			d.Wrong = cmp.Or(d.Wrong, r.Name+": "+a.Failed)
		}
		d.Missed = append(d.Missed, report.Missed(r.Name, r.Checks)...)
		for _, a := range r.Runners {
			rec := []string{r.Name, r.Curve, r.Device, strconv.Itoa(r.Threads), strconv.FormatInt(r.Bytes, 10), a.Name, a.Setting}
			for _, s := range []report.Spread{a.Hot, a.Cold} {
				rate := ""
				if len(s.Raw) > 0 {
					rate = report.Decimal(r.gbps(s.Median))
				}
				rec = append(append(rec, report.Cells(s)...), rate)
			}
			d.Sheet.Add(append(rec, a.Failed)...)
		}
		title, threads := r.Title, p.threads(r)
		for _, c := range r.Checks {
			ours, other := "–", "–"
			if a := r.runner(Ours); a != nil && a.Failed == "" {
				ours = report.Short(*a.us(c.Bar.Cold))
			}
			if c.Other != "" {
				other = c.Other + " " + report.Short(c.Than)
			}
			bars.AddBar(c.Pass, title, threads, ours, c.Bar.Text, c.Bar.Show(c.Figure()), other, c.Word())
			title, threads = "", ""
		}
	}
	if len(bars.Rows) > 0 {
		d.Add("", bars)
	}
	d.Add("", p.figureTable())
	return d.WithRaw()
}

func (p *Report) threads(r *Result) string {
	if p.Device != nil {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

// figureTable lists ours, the copy and the peers of all rows.
func (p *Report) figureTable() *report.Table {
	t := &report.Table{Head: []string{"workload", "threads", "bytes touched", "ours: hot µs, GB/s, of the copy", "ours: cold µs, GB/s, of the copy", "copy hot / cold µs"}}
	for _, r := range p.Rows {
		copies := []string{"–", "–"}
		for i, cold := range []bool{false, true} {
			if a, _ := r.fastest(theCopy, cold); a != nil {
				copies[i] = report.Digits(a.us(cold).Median)
			}
		}
		line := []string{r.Title, p.threads(r), report.Digits(float64(r.Bytes)/1e6) + " MB", r.summary(false), r.summary(true), copies[0] + " / " + copies[1]}
		for _, a := range r.Runners {
			if a.always() {
				continue
			}
			at := report.Find(&t.Head, a.Name)
			for len(line) <= at {
				line = append(line, "")
			}
			if line[at] = report.Short(a.Hot); a.Failed != "" {
				line[at] = "failed: " + a.Failed
			}
		}
		t.Add(line...)
	}
	for i := range t.Rows {
		t.Rows[i] = append(t.Rows[i], make([]string, len(t.Head)-len(t.Rows[i]))...)
	}
	return t
}

// figures are GB/s over bytes of the sweeps, hot and cold, with the copies of the same run as a dashed line.
func (p *Report) figures() (out []*report.Figure) {
	for _, word := range []string{"hot", "cold"} {
		f := &report.Figure{Name: p.name() + "-curve-" + word, Title: "Bytes touched a second, caches " + word, X: "bytes touched by a call", Unit: "GB/s"}
		limit := report.Curve{Name: "copy of as many bytes", Limit: true}
		first := ""
		for _, r := range p.Rows {
			name := r.Curve
			if p.Device == nil {
				name = fmt.Sprintf("%s, %d threads", r.Curve, r.Threads)
			}
			ours, _ := r.fastest(Ours, word == "cold")
			if r.Curve == "" || ours == nil {
				continue
			}
			f.Point(name, float64(r.Bytes), max(r.gbps(ours.us(word == "cold").Median), 1e-6))
			first = cmp.Or(first, name)
			if a, _ := r.fastest(theCopy, word == "cold"); a != nil && name == first {
				limit.Points = append(limit.Points, plotter.XY{X: float64(r.Bytes), Y: max(r.gbps(a.us(word == "cold").Median), 1e-6)})
			}
		}
		if f.Curves != nil {
			f.Curves = append(f.Curves, limit)
			out = append(out, f)
		}
	}
	return out
}
