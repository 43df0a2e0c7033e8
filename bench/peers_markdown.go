package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Markdown writes the report as docs/PERFORMANCE.md shows it.
func (p *PeerReport) Markdown(w io.Writer) {
	fmt.Fprintf(w, "`%s` on %s: %s, %d cores, %.1f GB, kernel %s, load %s at the start, revision %s.\n\n", p.Command, p.Machine.Time.Format("2006-01-02 15:04 MST"), p.Machine.CPU, p.Machine.Cores, p.Machine.MemoryGB, p.Machine.Kernel, p.Machine.Load1, p.Machine.Revision)
	var v []string
	for _, k := range slices.Sorted(maps.Keys(p.Versions)) {
		v = append(v, k+" "+p.Versions[k])
	}
	fmt.Fprintf(w, "Versions: %s, %s.\n\n", p.Machine.Go, strings.Join(v, ", "))
	fmt.Fprint(w, "Median (min–max) of the repeats, runners interleaved, a fresh process each. Ratios are taken repeat by repeat, CPU s against CPU s unless the bar says otherwise; CPU s = CPU seconds of the process tree per 1,000 samples.\n\n")
	p.bars(w)
	for _, f := range peerFamilies {
		if r := p.Families[f.name]; r != nil {
			fmt.Fprintf(w, "\n### %s: batch %v, %v threads or workers, %v repeats\n\n", familyTitle(f), r.Workload["batch_size"], r.Workload["workers"], r.Workload["repeats"])
			r.runnerTable(w)
		}
	}
}

func familyTitle(f peerFamily) string {
	s := "set " + f.set
	if f.window > 0 {
		s += fmt.Sprintf(", windows of %d", f.window)
	}
	if f.size > 0 {
		s += fmt.Sprintf(", %d×%d", f.size, f.size)
	}
	return s
}

func (p *PeerReport) bars(w io.Writer) {
	fmt.Fprintln(w, "| workload | bar | ours | the other | ratio | |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for _, row := range p.Verdicts {
		for i, v := range row.Verdicts {
			title := ""
			if i == 0 {
				title = row.Title
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", title, v.Bar.Text, v.Bar.Metric.text(v.Ours), v.Bar.Metric.text(v.Than), times(v.Ratio), v.word())
		}
	}
}

// text gives a spread in the metric's unit; nothing where there is no figure.
func (m Metric) text(s Spread) string {
	if len(s.Raw) == 0 || math.IsNaN(s.Median) {
		return "–"
	}
	switch m {
	case CPU:
		return short(s) + " CPU s"
	case Rate:
		return short(s) + " /s"
	case Memory:
		return short(s) + " MB"
	case Faults:
		return fmt.Sprintf("%.0f wrong", s.Max)
	}
	return short(s)
}

func (v Verdict) word() string {
	word := "**fail**"
	if v.Pass {
		word = "pass"
	} else if len(v.Ours.Raw) == 0 || v.Bar.Than != "" && len(v.Than.Raw) == 0 {
		word = "no figure"
	}
	if v.Note != "" {
		word += ": " + cell(v.Note)
	}
	return word
}

func times(s Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	return short(s) + "×"
}

// short is a spread with three digits.
func short(s Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	if s.Min == s.Max {
		return digits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", digits(s.Median), digits(s.Min), digits(s.Max))
}

// digits gives three digits, and no fewer before the point.
func digits(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// cell keeps a text inside a Markdown cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(s)
}

// runnerTable lists all runners of the run, runners and limits.
func (r *Report) runnerTable(w io.Writer) {
	fmt.Fprintln(w, "| runner | setting | samples/s | CPU s | first batch s | peak PSS MB | of ideal shuffle | wrong of checked | times an epoch | order |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for i := range r.Results {
		res := &r.Results[i]
		if res.Failed != "" {
			fmt.Fprintf(w, "| %s | %s | failed: %s | | | | | | | |\n", res.Runner.Name, cell(res.Runner.Setting), cell(res.Failed))
			continue
		}
		checked, wrong := int64(0), int64(0)
		coverage, order := "–", "–"
		for k := range res.Runs {
			o := &res.Runs[k]
			checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
			if low, high := o.coverage(); high > 0 {
				coverage = fmt.Sprintf("%d–%d", low, high)
				if low == high {
					coverage = fmt.Sprint(low)
				}
			}
			order = cmp.Or(o.OrderSHA256, order)
		}
		right := "–"
		if checked > 0 {
			right = fmt.Sprintf("%d of %d", wrong, checked)
		}
		shuffle := "–"
		if s := spreadOf(Randomness.values(res)); len(s.Raw) > 0 && !math.IsNaN(s.Median) {
			shuffle = fmt.Sprintf("%.2f", s.Median)
		}
		first := "–"
		if res.FirstBatchS.Max > 0 {
			first = short(res.FirstBatchS)
		}
		if len(order) > 8 {
			order = order[:8]
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", res.Runner.Name, cell(res.Runner.Setting), short(res.SamplesPerS), short(res.CPUPer1000), first, short(res.PSSPeakMB), shuffle, right, coverage, order)
	}
}
