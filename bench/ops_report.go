package bench

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

	"gonum.org/v1/plot/plotter"

	"github.com/goatnote-inc/robocache"
)

// Write puts ops-DEVICE.json, .csv, .md, .html into dir, and the plots as PNG and SVG.
func (p *OpsReport) Write(dir string) error { return p.document().write(dir, p.stem()) }

// Keep puts the JSON alone into dir: after each row, so that a run that is broken off has what it measured.
func (p *OpsReport) Keep(dir string) error { return writeJSON(filepath.Join(dir, p.stem()+".json"), p) }

func (p *OpsReport) stem() string {
	if p.Device != nil {
		return "ops-cuda"
	}
	return "ops-cpu"
}

// ReadOps reads a report that Write wrote. Its bars are judged again.
func ReadOps(file string) (*OpsReport, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"file": file})
	}
	p := &OpsReport{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "bench ops", Where: robocache.Where{"file": file}, Msg: "no report of bench ops", Err: err}
	}
	p.judge()
	return p, nil
}

// Wrong is the error of a run in which ours gave a wrong result or none: the figures are written all the same.
func (p *OpsReport) Wrong() error {
	for _, r := range p.Rows {
		if a := r.runner(OpsOurs); a != nil && a.Failed != "" {
			return fmt.Errorf("bench ops: %s: %s", r.Name, a.Failed)
		}
	}
	return nil
}

// Markdown writes the report as docs/PERFORMANCE.md shows it: the bars, then every runner's figures, then the curves.
func (p *OpsReport) Markdown(w io.Writer) { p.document().Markdown(w) }

func (p *OpsReport) document() *document {
	device := ""
	if p.Device != nil {
		device = fmt.Sprintf("; %s, %s, image %s", p.Device.Name, p.Device.Driver, p.Device.Image)
	}
	text := fmt.Sprintf("µs a call, median (min–max) of %d rounds in which the runners took turns. Hot: the same buffers again and again; cold: buffers that together are four times the cache of %d MiB.", p.Rounds, p.Cache>>20)
	if p.Clock == "cpu" {
		text = "Of the thread's own CPU time, since the machine was not quiet. " + text
	}
	d := &document{Title: "robocache bench ops", Command: p.Command, Sheet: p.sheet(), Raw: p, Sections: []section{{Text: append(about(p.Command, p.Machine, device, p.Versions), text)}}}
	for _, f := range p.figures() {
		d.Sections = append(d.Sections, section{Figure: f})
	}
	if t := p.barTable(); len(t.Rows) > 0 {
		d.Sections = append(d.Sections, section{Table: t})
	}
	rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r *OpsResult) bool { return r.Curve != "" })
	if len(rows) > 0 {
		d.Sections = append(d.Sections, section{Table: figureTable(rows, []string{"workload", "threads"}, func(r *OpsResult) []string { return []string{r.Title, p.threads(r)} })})
	}
	names, points := p.curves()
	for _, n := range names {
		d.Sections = append(d.Sections, section{Text: []string{"Curve " + n + ": " + points[n][0].curveTitle()}, Table: figureTable(points[n], []string{"B"}, func(r *OpsResult) []string { return []string{fmt.Sprint(r.Work.B)} })})
	}
	d.Sections = append(d.Sections, raw(p))
	return d
}

func (p *OpsReport) threads(r *OpsResult) string {
	if p.Device != nil {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

// sheet has a line a runner.
func (p *OpsReport) sheet() *table {
	t := &table{Head: []string{"row", "curve", "device", "threads", "bytes", "arm", "setting", "us", "us_min", "us_max", "gb_per_s", "us_cold", "us_cold_min", "us_cold_max", "gb_per_s_cold", "failed"}}
	for _, r := range p.Rows {
		for _, a := range r.Runners {
			rec := []string{r.Name, r.Curve, r.Device, strconv.Itoa(r.Threads), strconv.FormatInt(r.Bytes, 10), a.Name, a.Setting}
			for _, s := range []Spread{a.Hot, a.Cold} {
				rate := ""
				if len(s.Raw) > 0 {
					rate = decimal(r.gbps(s.Median))
				}
				rec = append(append(rec, cells(s)...), rate)
			}
			t.add(append(rec, a.Failed)...)
		}
	}
	return t
}

func (p *OpsReport) barTable() *table {
	t := &table{Head: []string{"workload", "threads", "ours µs", "bar", "figure", "beside it, µs", ""}}
	for _, r := range p.Rows {
		title, threads := r.Title, p.threads(r)
		for _, v := range r.Verdicts {
			ours, other := "–", "–"
			if a := r.runner(OpsOurs); a != nil && a.Failed == "" {
				ours = short(a.us(v.Bar.Cold))
			}
			if v.Other != "" {
				other = v.Other + " " + short(v.OtherUS)
			}
			t.addBar(v.Pass, title, threads, ours, v.Bar.Text, v.Bar.text(v.Figure), other, v.word())
			title, threads = "", ""
		}
	}
	return t
}

func (v OpsVerdict) word() string {
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
func peerNames(rows []*OpsResult) []string {
	var out []string
	for _, r := range rows {
		for _, a := range r.Runners {
			if !a.judgedCold() {
				find(&out, a.Name)
			}
		}
	}
	return out
}

// figureTable lists ours, the copy and the peers of some rows; begin gives the first cells.
func figureTable(rows []*OpsResult, head []string, begin func(*OpsResult) []string) *table {
	peers := peerNames(rows)
	t := &table{Head: append(append(head, "bytes touched", "ours: hot µs, GB/s, of the copy", "ours: cold µs, GB/s, of the copy", "copy hot / cold µs"), peers...)}
	for _, r := range rows {
		line := append(begin(r), megabytes(r.Bytes), r.ourCell(false), r.ourCell(true), r.copyCell())
		for _, n := range peers {
			switch a := r.runner(n); {
			case a == nil:
				line = append(line, "")
			case a.Failed != "":
				line = append(line, "failed: "+a.Failed)
			default:
				line = append(line, short(a.Hot))
			}
		}
		t.add(line...)
	}
	return t
}

func megabytes(n int64) string {
	switch {
	case n == 0:
		return "–"
	case n < 1e6:
		return digits(float64(n)/1e3) + " kB"
	}
	return digits(float64(n)/1e6) + " MB"
}

func (r *OpsResult) ourCell(cold bool) string {
	a := r.runner(OpsOurs)
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
	out := fmt.Sprintf("%s, %s", short(s), digits(r.gbps(s.Median)))
	if share := r.share(cold); len(share.Raw) > 0 {
		out += ", " + digits(100*share.Median) + " %"
	}
	return out
}

func (r *OpsResult) copyCell() string {
	out := []string{"–", "–"}
	for i, cold := range []bool{false, true} {
		if a := r.limit(cold); a != nil {
			out[i] = digits(a.us(cold).Median)
		}
	}
	return strings.Join(out, " / ")
}

// curves are the sweeps that were run, in order, by threads.
func (p *OpsReport) curves() (names []string, points map[string][]*OpsResult) {
	points = map[string][]*OpsResult{}
	for _, r := range p.Rows {
		if r.Curve == "" {
			continue
		}
		name := r.Curve
		if p.Device == nil {
			name = fmt.Sprintf("%s, %d threads", r.Curve, r.Threads)
		}
		find(&names, name)
		points[name] = append(points[name], r)
	}
	return names, points
}

func (r *OpsResult) curveTitle() string {
	w := r.Work
	s := fmt.Sprintf("B×(%s) → %d, %s", w.shapes(), w.T, shortType(w.DType))
	if w.Ragged {
		s += ", ragged"
	}
	return s
}

// figures are GB/s over bytes, hot and cold, with the copies of the same run as a dashed line; and the ratios to the peers.
func (p *OpsReport) figures() []*figure {
	var out []*figure
	names, points := p.curves()
	for i, word := range []string{"hot", "cold"} {
		cold := i == 1
		f := &figure{Name: p.stem() + "-curve-" + word, Title: "Bytes touched a second, caches " + word, X: "bytes touched by a call", Unit: "GB/s"}
		line := func(name string, rows []*OpsResult, limit bool) {
			c := curve{Name: name, Limit: limit}
			for _, r := range rows {
				a := r.runner(OpsOurs)
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
	var c columns
	for _, r := range p.Rows {
		ours := r.runner(OpsOurs)
		if r.Curve != "" || ours == nil || len(ours.Hot.Raw) == 0 {
			continue
		}
		group := r.Name
		if p.Device == nil {
			group = fmt.Sprintf("%s %dt", r.Name, r.Threads)
		}
		add := func(name string, a *OpsRunner) {
			if a != nil && a.Failed == "" && len(a.Hot.Raw) > 0 {
				c.set(name, group, spreadOf([]float64{a.Hot.Median / ours.Hot.Median}))
			}
		}
		add("the copy", r.limit(false))
		for _, n := range peerNames([]*OpsResult{r}) {
			if n != "np.interp" && n != "reference" { // two orders of magnitude: nothing else could be read beside them
				add(n, r.runner(n))
			}
		}
	}
	if c.groups != nil {
		out = append(out, c.figure(p.stem()+"-speedup", "Ours against the peers (1 = as fast; the copy: share of its rate)", "times"))
	}
	return out
}
