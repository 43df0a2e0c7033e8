package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

func (p *Report) name() string {
	if p.Device != nil {
		return "ops-cuda"
	}
	return "ops-cpu"
}

// Read reads the JSON of a report. Its bars are checked again.
func Read(file string) (*Report, error) {
	p := &Report{}
	if err := report.ReadJSON(file, p); err != nil {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench ops", Where: robocache.Where{"file": file}, Msg: "no report of bench ops", Err: err}
	}
	p.check()
	return p, nil
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
	var rows []*Result
	for _, r := range p.Rows {
		if a := r.runner(Ours); a != nil && a.Failed != "" {
			d.Wrong = cmp.Or(d.Wrong, r.Name+": "+a.Failed)
		}
		d.Missed = append(d.Missed, report.Missed(r.Name, r.Checks)...)
		if r.Curve == "" {
			rows = append(rows, r)
		}
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
	if len(rows) > 0 {
		d.Add("", figureTable(rows, []string{"workload", "threads"}, func(r *Result) []string { return []string{r.Title, p.threads(r)} }))
	}
	names, points := p.curves()
	for _, n := range names {
		d.Add("", figureTable(points[n], []string{"B"}, func(r *Result) []string { return []string{fmt.Sprint(r.Work.B)} }), "Curve "+n+", the first point: "+points[n][0].Title)
	}
	return d.WithRaw()
}

func (p *Report) threads(r *Result) string {
	if p.Device != nil {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

// peerNames are the runners of the rows that are neither ours nor copies, in the order in which they come.
func peerNames(rows []*Result) []string {
	var out []string
	for _, r := range rows {
		for _, a := range r.Runners {
			if !a.always() {
				report.Find(&out, a.Name)
			}
		}
	}
	return out
}

// figureTable lists ours, the copy and the peers of some rows; begin gives the first cells.
func figureTable(rows []*Result, head []string, begin func(*Result) []string) *report.Table {
	peers := peerNames(rows)
	t := &report.Table{Head: append(append(head, "bytes touched", "ours: hot µs, GB/s, of the copy", "ours: cold µs, GB/s, of the copy", "copy hot / cold µs"), peers...)}
	for _, r := range rows {
		copies := []string{"–", "–"}
		for i, cold := range []bool{false, true} {
			if a, _ := r.fastest(theCopy, cold); a != nil {
				copies[i] = report.Digits(a.us(cold).Median)
			}
		}
		line := append(begin(r), megabytes(r.Bytes), r.summary(false), r.summary(true), copies[0]+" / "+copies[1])
		for _, n := range peers {
			switch a := r.runner(n); {
			case a == nil:
				line = append(line, "")
			case a.Failed != "":
				line = append(line, "failed: "+a.Failed)
			default:
				line = append(line, report.Short(a.Hot))
			}
		}
		t.Add(line...)
	}
	return t
}

func megabytes(n int64) string {
	switch {
	case n == 0:
		return "–"
	case n < 1e6:
		return report.Digits(float64(n)/1e3) + " kB"
	}
	return report.Digits(float64(n)/1e6) + " MB"
}

// curves are the sweeps that were run, in order, by threads.
func (p *Report) curves() (names []string, points map[string][]*Result) {
	points = map[string][]*Result{}
	for _, r := range p.Rows {
		if r.Curve == "" {
			continue
		}
		name := r.Curve
		if p.Device == nil {
			name = fmt.Sprintf("%s, %d threads", r.Curve, r.Threads)
		}
		report.Find(&names, name)
		points[name] = append(points[name], r)
	}
	return names, points
}

// figures are GB/s over bytes, hot and cold, with the copies of the same run as a dashed line; and the ratios to the peers.
func (p *Report) figures() []*report.Figure {
	var out []*report.Figure
	names, points := p.curves()
	for i, word := range []string{"hot", "cold"} {
		cold := i == 1
		f := &report.Figure{Name: p.name() + "-curve-" + word, Title: "Bytes touched a second, caches " + word, X: "bytes touched by a call", Unit: "GB/s"}
		line := func(name string, rows []*Result, limit bool) {
			c := report.Curve{Name: name, Limit: limit}
			for _, r := range rows {
				of := Ours
				if limit {
					of = theCopy
				}
				if a, _ := r.fastest(of, cold); a != nil {
					c.Points = append(c.Points, plotter.XY{X: float64(r.Bytes), Y: max(r.gbps(a.us(cold).Median), 1e-6)})
				}
			}
			f.Curves = append(f.Curves, c)
		}
		for _, n := range names {
			line(n, points[n], false)
		}
		if len(names) > 0 && len(f.Curves[0].Points) > 0 {
			line("copy of as many bytes", points[names[0]], true)
			out = append(out, f)
		}
	}
	f := &report.Figure{Name: p.name() + "-speedup", Title: "Ours against the peers (1 = as fast; the copy: share of its rate)", Unit: "times"}
	for _, r := range p.Rows {
		ours, _ := r.fastest(Ours, false)
		if r.Curve != "" || ours == nil {
			continue
		}
		group := r.Name
		if p.Device == nil {
			group = fmt.Sprintf("%s %dt", r.Name, r.Threads)
		}
		if a, _ := r.fastest(theCopy, false); a != nil {
			f.Set("the copy", group, report.SpreadOf([]float64{a.Hot.Median / ours.Hot.Median}))
		}
		for _, a := range r.Runners {
			// np.interp and the reference: two orders of magnitude, nothing else could be read beside them.
			if !a.always() && a.Failed == "" && len(a.Hot.Raw) > 0 && !slices.Contains([]string{"np.interp", "reference"}, a.Name) {
				f.Set(a.Name, group, report.SpreadOf([]float64{a.Hot.Median / ours.Hot.Median}))
			}
		}
	}
	if f.Groups != nil {
		out = append(out, f)
	}
	return out
}
