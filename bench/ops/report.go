package ops

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Document returns ops-DEVICE.json and so on: the bars, then the figures of all runners. The report
// is wrong if our runner failed or gave a wrong result.
func (p *Report) Document() *report.Document {
	name, device := "ops-cpu", ""
	if p.Device != nil {
		name, device = "ops-cuda", fmt.Sprintf(
			"; %s, %s, image %s",
			p.Device.Name,
			p.Device.Driver,
			p.Device.Image,
		)
	}
	text := fmt.Sprintf(
		"µs a call, median (min–max) of %d rounds in which the runners took turns. Hot: the same "+
			"buffers again and again; cold: buffers that together are four times the cache of %d "+
			"MiB.",
		p.Rounds,
		p.Cache>>20,
	)
	if p.Clock == "cpu" {
		text = "Of the thread's own CPU time, since the machine was not quiet. " + text
	}
	d := &report.Document{Name: name, Title: "robocache-bench ops", Command: p.Command, Raw: p}
	d.Add("", nil, append(report.About(p.Command, p.Machine, device, p.Versions), text)...)
	d.Sheet = &report.Table{
		Head: []string{
			"row",
			"curve",
			"device",
			"threads",
			"bytes",
			"arm",
			"setting",
			"us",
			"us_min",
			"us_max",
			"gb_per_s",
			"us_cold",
			"us_cold_min",
			"us_cold_max",
			"gb_per_s_cold",
			"failed",
		},
	}
	bars := &report.Table{
		Head: []string{"workload", "threads", "ours µs", "bar", "figure", "beside it, µs", ""},
	}
	for _, r := range p.Rows {
		if a := r.runnerNamed(Ours); a != nil && a.Failed != "" {
			d.Wrong = cmp.Or(d.Wrong, r.Name+": "+a.Failed)
		}
		d.Missed = append(d.Missed, report.Missed(r.Name, r.Checks)...)
		for _, a := range r.Runners {
			rec := []string{
				r.Name,
				r.Curve,
				r.Device,
				strconv.Itoa(r.Threads),
				strconv.FormatInt(r.Bytes, 10),
				a.Name,
				a.Setting,
			}
			for _, s := range []report.Spread{a.Hot, a.Cold} {
				rate := ""
				if len(s.Raw) > 0 {
					rate = report.Decimal(r.gbps(s.Median))
				}
				rec = append(append(rec, report.Cells(s)...), rate)
			}
			d.Sheet.Add(append(rec, a.Failed)...)
		}
		title, threads := r.Title, p.threadsCell(r)
		for _, c := range r.Checks {
			ours, other := "–", "–"
			if a := r.runnerNamed(Ours); a != nil && a.Failed == "" {
				ours = report.Short(*a.callTimes(c.Bar.Cold))
			}
			if c.Other != "" {
				other = c.Other + " " + report.Short(c.Than)
			}
			bars.AddBar(
				c.Pass,
				title,
				threads,
				ours,
				c.Bar.Text,
				c.Bar.Show(c.Figure()),
				other,
				c.Word(),
			)
			title, threads = "", ""
		}
	}
	if len(bars.Rows) > 0 {
		d.Add("", bars)
	}
	d.Add("", p.figureTable())
	return d.WithRaw()
}

func (p *Report) threadsCell(r *Result) string {
	if p.Device != nil {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

// figureTable lists the figures of our runner, the copy and the peers for all rows.
func (p *Report) figureTable() *report.Table {
	t := &report.Table{
		Head: []string{
			"workload",
			"threads",
			"bytes touched",
			"ours: hot µs, GB/s, of the copy",
			"ours: cold µs, GB/s, of the copy",
			"copy hot / cold µs",
		},
	}
	for _, r := range p.Rows {
		copies := []string{"–", "–"}
		for i, cold := range []bool{false, true} {
			if a, _ := r.fastestRunner(theCopy, cold); a != nil {
				copies[i] = report.Digits(a.callTimes(cold).Median)
			}
		}
		line := []string{
			r.Title,
			p.threadsCell(r),
			report.Digits(float64(r.Bytes)/1e6) + " MB",
			r.ourSummary(false),
			r.ourSummary(true),
			copies[0] + " / " + copies[1],
		}
		for _, a := range r.Runners {
			if a.isAlwaysCold() {
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
