package ops

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"

	"gonum.org/v1/plot/plotter"

	"github.com/goatnote-inc/robocache"
)

// Write puts ops-DEVICE.json, .csv, .md, .html into dir, and the plots as PNG and SVG.
func (p *Report) Write(dir string) error { return p.document().Write(dir, p.stem()) }

// Keep puts the JSON alone into dir: after each row, so that a run that is broken off has what it measured.
func (p *Report) Keep(dir string) error {
	return report.WriteJSON(filepath.Join(dir, p.stem()+".json"), p)
}

func (p *Report) stem() string {
	if p.Device != nil {
		return "ops-cuda"
	}
	return "ops-cpu"
}

// ReadOps reads a report that Write wrote. Its bars are judged again.
func Read(file string) (*Report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": file})
	}
	p := &Report{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench ops", Where: robocache.Where{"file": file}, Msg: "no report of bench ops", Err: err}
	}
	p.judge()
	return p, nil
}

// Wrong is the error of a run in which ours gave a wrong result or none: the figures are written all the same.
func (p *Report) Wrong() error {
	for _, r := range p.Rows {
		if a := r.runner(Ours); a != nil && a.Failed != "" {
			return fmt.Errorf("bench ops: %s: %s", r.Name, a.Failed)
		}
	}
	return nil
}

// Markdown writes the report as docs/PERFORMANCE.md shows it: the bars, then every runner's figures, then the curves.
func (p *Report) Markdown(w io.Writer) { p.document().Markdown(w) }

func (p *Report) document() *report.Document {
	device := ""
	if p.Device != nil {
		device = fmt.Sprintf("; %s, %s, image %s", p.Device.Name, p.Device.Driver, p.Device.Image)
	}
	text := fmt.Sprintf("µs a call, median (min–max) of %d rounds in which the runners took turns. Hot: the same buffers again and again; cold: buffers that together are four times the cache of %d MiB.", p.Rounds, p.Cache>>20)
	if p.Clock == "cpu" {
		text = "Of the thread's own CPU time, since the machine was not quiet. " + text
	}
	d := &report.Document{Title: "robocache bench ops", Command: p.Command, Sheet: p.sheet(), Raw: p, Sections: []report.Section{{Text: append(report.About(p.Command, p.Machine, device, p.Versions), text)}}}
	for _, f := range p.figures() {
		d.Sections = append(d.Sections, report.Section{Figure: f})
	}
	if t := p.barTable(); len(t.Rows) > 0 {
		d.Sections = append(d.Sections, report.Section{Table: t})
	}
	rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r *Result) bool { return r.Curve != "" })
	if len(rows) > 0 {
		d.Sections = append(d.Sections, report.Section{Table: figureTable(rows, []string{"workload", "threads"}, func(r *Result) []string { return []string{r.Title, p.threads(r)} })})
	}
	names, points := p.curves()
	for _, n := range names {
		d.Sections = append(d.Sections, report.Section{Text: []string{"Curve " + n + ": " + points[n][0].curveTitle()}, Table: figureTable(points[n], []string{"B"}, func(r *Result) []string { return []string{fmt.Sprint(r.Work.B)} })})
	}
	d.Sections = append(d.Sections, report.Raw(p))
	return d
}

func (p *Report) threads(r *Result) string {
	if p.Device != nil {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

// sheet has a line a runner.
func (p *Report) sheet() *report.Table {
	t := &report.Table{Head: []string{"row", "curve", "device", "threads", "bytes", "arm", "setting", "us", "us_min", "us_max", "gb_per_s", "us_cold", "us_cold_min", "us_cold_max", "gb_per_s_cold", "failed"}}
	for _, r := range p.Rows {
		for _, a := range r.Runners {
			rec := []string{r.Name, r.Curve, r.Device, strconv.Itoa(r.Threads), strconv.FormatInt(r.Bytes, 10), a.Name, a.Setting}
			for _, s := range []report.Spread{a.Hot, a.Cold} {
				rate := ""
				if len(s.Raw) > 0 {
					rate = report.Decimal(r.gbps(s.Median))
				}
				rec = append(append(rec, report.Cells(s)...), rate)
			}
			t.Add(append(rec, a.Failed)...)
		}
	}
	return t
}

func (p *Report) barTable() *report.Table {
	t := &report.Table{Head: []string{"workload", "threads", "ours µs", "bar", "figure", "beside it, µs", ""}}
	for _, r := range p.Rows {
		title, threads := r.Title, p.threads(r)
		for _, v := range r.Verdicts {
			ours, other := "–", "–"
			if a := r.runner(Ours); a != nil && a.Failed == "" {
				ours = report.Short(a.us(v.Bar.Cold))
			}
			if v.Other != "" {
				other = v.Other + " " + report.Short(v.OtherUS)
			}
			t.AddBar(v.Pass, title, threads, ours, v.Bar.Text, v.Bar.text(v.Figure), other, v.word())
			title, threads = "", ""
		}
	}
	return t
}

func (v Verdict) word() string {
	word := "**missed**"
	switch {
	case !v.Judged:
		word = "no figure"
	case v.Pass:
		word = "met"
	}
	if v.Note != "" {
		word += ": " + v.Note
	}
	return word
}

// peerNames are the runners of the rows that are neither ours nor copies, in the order in which they come.
func peerNames(rows []*Result) []string {
	var out []string
	for _, r := range rows {
		for _, a := range r.Runners {
			if !a.judgedCold() {
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
		line := append(begin(r), megabytes(r.Bytes), r.ourCell(false), r.ourCell(true), r.copyCell())
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

func (r *Result) ourCell(cold bool) string {
	a := r.runner(Ours)
	switch {
	case r.Skipped != "":
		return r.Skipped
	case a == nil:
		return "–"
	case a.Failed != "":
		return "failed: " + a.Failed
	case len(a.us(cold).Raw) == 0:
		return "–"
	}
	s := a.us(cold)
	out := fmt.Sprintf("%s, %s", report.Short(s), report.Digits(r.gbps(s.Median)))
	if share := r.share(cold); len(share.Raw) > 0 {
		out += ", " + report.Digits(100*share.Median) + " %"
	}
	return out
}

func (r *Result) copyCell() string {
	out := []string{"–", "–"}
	for i, cold := range []bool{false, true} {
		if a := r.limit(cold); a != nil {
			out[i] = report.Digits(a.us(cold).Median)
		}
	}
	return strings.Join(out, " / ")
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

func (r *Result) curveTitle() string {
	w := r.Work
	s := fmt.Sprintf("B×(%s) → %d, %s", w.shapes(), w.T, shortType(w.DType))
	if w.Ragged {
		s += ", ragged"
	}
	return s
}

// figures are GB/s over bytes, hot and cold, with the copies of the same run as a dashed line; and the ratios to the peers.
func (p *Report) figures() []*report.Figure {
	var out []*report.Figure
	names, points := p.curves()
	for i, word := range []string{"hot", "cold"} {
		cold := i == 1
		f := &report.Figure{Name: p.stem() + "-curve-" + word, Title: "Bytes touched a second, caches " + word, X: "bytes touched by a call", Unit: "GB/s"}
		line := func(name string, rows []*Result, limit bool) {
			c := report.Curve{Name: name, Limit: limit}
			for _, r := range rows {
				a := r.runner(Ours)
				if limit {
					a = r.limit(cold)
				}
				if a != nil && a.Failed == "" && len(a.us(cold).Raw) > 0 {
					c.Points = append(c.Points, plotter.XY{X: float64(r.Bytes), Y: math.Max(r.gbps(a.us(cold).Median), 1e-6)})
				}
			}
			f.Curves = append(f.Curves, c)
		}
		for _, n := range names {
			line(n, points[n], false)
		}
		if len(f.Curves) == 0 || len(f.Curves[0].Points) == 0 {
			continue
		}
		line("copy of as many bytes", points[names[0]], true)
		out = append(out, f)
	}
	var c report.Columns
	for _, r := range p.Rows {
		ours := r.runner(Ours)
		if r.Curve != "" || ours == nil || len(ours.Hot.Raw) == 0 {
			continue
		}
		group := r.Name
		if p.Device == nil {
			group = fmt.Sprintf("%s %dt", r.Name, r.Threads)
		}
		add := func(name string, a *Runner) {
			if a != nil && a.Failed == "" && len(a.Hot.Raw) > 0 {
				c.Set(name, group, report.SpreadOf([]float64{a.Hot.Median / ours.Hot.Median}))
			}
		}
		add("the copy", r.limit(false))
		for _, n := range peerNames([]*Result{r}) {
			if n != "np.interp" && n != "reference" { // two orders of magnitude: nothing else could be read beside them
				add(n, r.runner(n))
			}
		}
	}
	if c.Groups != nil {
		out = append(out, c.Figure(p.stem()+"-speedup", "Ours against the peers (1 = as fast; the copy: share of its rate)", "times"))
	}
	return out
}
