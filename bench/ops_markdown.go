package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Markdown writes the report as docs/PERFORMANCE.md shows it: the bars, then every runner's figures, then the curves.
func (p *OpsReport) Markdown(w io.Writer) {
	fmt.Fprintf(w, "`%s` on %s: %s, %d cores", p.Command, p.Machine.Time.Format("2006-01-02 15:04 MST"), p.Machine.CPU, p.Machine.Cores)
	if p.Device != nil {
		fmt.Fprintf(w, "; %s, %s, image %s", p.Device.Name, p.Device.Driver, p.Device.Image)
	}
	fmt.Fprintf(w, "; load %s at the start, revision %s.", p.Machine.Load1, p.Machine.Revision)
	v := []string{p.Machine.Go}
	for _, k := range slices.Sorted(maps.Keys(p.Versions)) {
		v = append(v, k+" "+p.Versions[k])
	}
	fmt.Fprintf(w, " %s.\n\n", strings.Join(v, ", "))
	if p.Clock == "cpu" {
		fmt.Fprint(w, "Of the thread's own CPU time, since the machine was not quiet. ")
	}
	fmt.Fprintf(w, "µs a call, median (min–max) of %d rounds in which the runners took turns. Hot: the same buffers again and again; cold: buffers that together are four times the cache of %d MiB.\n", p.Rounds, p.Cache>>20)
	p.barTable(w)
	p.figureTable(w)
	p.curveTables(w)
}

func (p *OpsReport) threads(r *OpsResult) string {
	if p.Device != nil {
		return ""
	}
	return fmt.Sprint(r.Threads)
}

func (p *OpsReport) barTable(w io.Writer) {
	any := false
	for _, r := range p.Rows {
		any = any || len(r.Verdicts) > 0
	}
	if !any {
		return
	}
	fmt.Fprintln(w, "\n| workload | threads | ours µs | bar | figure | beside it, µs | |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range p.Rows {
		for i, v := range r.Verdicts {
			title, threads := "", ""
			if i == 0 {
				title, threads = r.Title, p.threads(r)
			}
			ours := "–"
			if a := r.runner(OpsOurs); a != nil && a.Failed == "" {
				ours = short(a.us(v.Bar.Cold))
			}
			other := "–"
			if v.Other != "" {
				other = v.Other + " " + short(v.OtherUS)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", title, threads, ours, v.Bar.Text, v.Bar.text(v.Figure), other, v.word())
		}
	}
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
		word += ": " + cell(v.Note)
	}
	return word
}

// peerNames are the runners of the rows that are neither ours nor copies, in the order in which they come.
func peerNames(rows []*OpsResult) []string {
	var out []string
	for _, r := range rows {
		for _, a := range r.Runners {
			if a.Name != OpsOurs && !family("memcpy", a.Name) && !family("copy", a.Name) && !slices.Contains(out, a.Name) {
				out = append(out, a.Name)
			}
		}
	}
	return out
}

func (p *OpsReport) figureTable(w io.Writer) {
	rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r *OpsResult) bool { return r.Curve != "" })
	if len(rows) == 0 {
		return
	}
	peers := peerNames(rows)
	fmt.Fprintf(w, "\n| workload | threads | bytes touched | ours: hot µs, GB/s, of the copy | ours: cold µs, GB/s, of the copy | copy hot / cold µs |")
	for _, n := range peers {
		fmt.Fprintf(w, " %s |", n)
	}
	fmt.Fprint(w, "\n|---|---|---|---|---|---|")
	fmt.Fprintln(w, strings.Repeat("---|", len(peers)))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |", r.Title, p.threads(r), megabytes(r.Bytes), r.ourCell(false), r.ourCell(true), r.copyCell())
		for _, n := range peers {
			a := r.runner(n)
			switch {
			case a == nil:
				fmt.Fprint(w, " |")
			case a.Failed != "":
				fmt.Fprintf(w, " failed: %s |", cell(a.Failed))
			default:
				fmt.Fprintf(w, " %s |", short(a.Hot))
			}
		}
		fmt.Fprintln(w)
	}
}

func megabytes(n int64) string {
	if n == 0 {
		return "–"
	}
	if n < 1e6 {
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
		return "failed: " + cell(a.Failed)
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
	var out []string
	for _, cold := range []bool{false, true} {
		if a := r.limit(cold); a != nil {
			out = append(out, digits(a.us(cold).Median))
		} else {
			out = append(out, "–")
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
		if points[name] == nil {
			names = append(names, name)
		}
		points[name] = append(points[name], r)
	}
	return names, points
}

func (p *OpsReport) curveTables(w io.Writer) {
	names, points := p.curves()
	for _, n := range names {
		peers := peerNames(points[n])
		fmt.Fprintf(w, "\nCurve %s: %s\n\n| B | bytes touched | ours: hot µs, GB/s, of the copy | ours: cold µs, GB/s, of the copy | copy hot / cold µs |", n, points[n][0].curveTitle())
		for _, x := range peers {
			fmt.Fprintf(w, " %s |", x)
		}
		fmt.Fprintln(w, "\n|---|---|---|---|---|"+strings.Repeat("---|", len(peers)))
		for _, r := range points[n] {
			fmt.Fprintf(w, "| %d | %s | %s | %s | %s |", r.Work.B, megabytes(r.Bytes), r.ourCell(false), r.ourCell(true), r.copyCell())
			for _, x := range peers {
				if a := r.runner(x); a != nil && a.Failed == "" {
					fmt.Fprintf(w, " %s |", short(a.Hot))
				} else {
					fmt.Fprint(w, " |")
				}
			}
			fmt.Fprintln(w)
		}
	}
}

func (r *OpsResult) curveTitle() string {
	w := r.Work
	shape := ""
	for i, s := range w.Streams {
		if i > 0 {
			shape += ", "
		}
		shape += fmt.Sprintf("%d×%d", s.S, s.D)
	}
	s := fmt.Sprintf("B×(%s) → %d, %s", shape, w.T, shortType(w.DType))
	if w.Ragged {
		s += ", ragged"
	}
	return s
}

// Wrong is the error of a run in which a runner of ours gave a wrong result or none: the figures are written all the same.
func (p *OpsReport) Wrong() error {
	for _, r := range p.Rows {
		if a := r.runner(OpsOurs); a != nil && a.Failed != "" {
			return fmt.Errorf("bench ops: %s: %s", r.Name, a.Failed)
		}
	}
	return nil
}
