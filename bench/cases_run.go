package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// CaseReport is the report of `robocache-bench peers`, `robocache-bench formats` or `robocache-bench
// clients`.
type CaseReport struct {
	Name     string             `json:"-"` // peers | formats | clients
	Command  string             `json:"command"`
	Machine  report.Machine     `json:"machine"`
	Versions map[string]string  `json:"versions"`
	Repeats  int                `json:"repeats"`
	Cases    []Case             `json:"-"`
	Results  []CaseResult       `json:"rows"`
	Families map[string]*Report `json:"families"`
	Skipped  map[string]string  `json:"skipped,omitempty"` // reasons, by family
}

// CaseResult holds a case and the results of its bars.
type CaseResult struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Family  string         `json:"family"`
	Repeats int            `json:"repeats"`
	Checks  []report.Check `json:"bars"`
}

// RunCases runs the cases family by family. All runners of a family run in one interleaved
// measurement. RunCases calls keep with the report so far after each family.
func RunCases(
	ctx context.Context,
	cases []Case,
	w CaseWork,
	repeats int,
	timeout time.Duration,
	keep func(*CaseReport) error,
	log func(format string, a ...any),
) (p *CaseReport, err error) {
	defer w.closeOpened()
	p = &CaseReport{
		Name:     w.Name,
		Command:  w.Command,
		Cases:    cases,
		Repeats:  repeats,
		Versions: map[string]string{},
		Families: map[string]*Report{},
		Skipped:  map[string]string{},
		Machine:  report.ThisMachine(w.Revision),
	}
	for _, f := range familiesOf(cases) {
		log("== %s", f.Name)
		if why := w.reasonToSkip(ctx, f); why != "" {
			p.Skipped[f.Name] = why
			log("skipped %s", why)
			continue
		}
		n := repeats
		if f.Slow {
			n = (repeats + 1) / 2
		}
		field, err := w.Runners(ctx, f.Name, runnersOf(cases, f.Name))
		if err != nil {
			return p, err
		}
		for i := range field {
			field[i].finished = w.Done
			field[i].runKey = []any{
				w.Name,
				f.Name,
				field[i].Name,
				w.Sets.workFolder(),
				w.BatchSize,
				w.Workers,
				w.Seconds,
				w.Seed,
				w.Revision,
				p.Machine.CPU,
				p.Machine.Cores,
			}
		}
		results, err := Run(ctx, field, n, timeout, log)
		if err != nil {
			return p, err
		}
		w.closeOpened()
		if err := w.Done.writeError(); err != nil {
			return p, err
		}
		for _, r := range results {
			for _, o := range r.Runs {
				maps.Copy(p.Versions, o.Versions)
			}
		}
		p.Families[f.Name] = &Report{
			Title:   "robocache-bench " + w.Name + ": " + f.Name,
			Unit:    "samples",
			Machine: p.Machine,
			Command: p.Command,
			Results: results,
			Workload: map[string]any{
				"set":        f.Set,
				"window":     f.Window,
				"image_size": f.Size,
				"batch_size": w.BatchSize,
				"workers":    w.Workers,
				"seconds":    w.Seconds,
				"seed":       w.Seed,
				"repeats":    n,
			},
		}
		p.checkBars()
		if err := keep(p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// checkBars checks the bars of the cases that were run.
func (p *CaseReport) checkBars() {
	p.Results = nil
	for _, c := range p.Cases {
		f := p.Families[c.Family]
		if f == nil {
			continue
		}
		r := CaseResult{
			Name:    c.Name,
			Title:   c.Title,
			Family:  c.Family,
			Repeats: f.Workload["repeats"].(int),
		}
		for _, b := range c.Bars {
			r.Checks = append(r.Checks, checkBar(b, f.Results))
		}
		p.Results = append(p.Results, r)
	}
}

// runnersOf returns the runners of the cases of a family, without duplicates, in order.
func runnersOf(cases []Case, family string) (out []string) {
	for _, c := range cases {
		for _, a := range c.Runners {
			if c.Family == family {
				report.Find(&out, a)
			}
		}
	}
	return out
}

// ReadCases reads a report of `robocache-bench peers` or `robocache-bench formats`. It also reads
// the files in docs/perf, which contain only the bars.
func ReadCases(path string) (*CaseReport, error) {
	p := &CaseReport{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
	return p, report.ReadJSON(path, p)
}

// Document returns the report and one part per family. The files are NAME.json and so on, where
// NAME is peers or formats. docs/PERFORMANCE.md includes the Markdown.
func (p *CaseReport) Document() *report.Document {
	d := &report.Document{
		Name:    p.Name,
		Title:   "robocache-bench " + p.Name,
		Command: p.Command,
		Sheet:   barTable(p.Results, func(report.Check) bool { return true }),
		Raw:     p,
	}
	d.Add(
		"",
		nil,
		append(
			report.About(p.Command, p.Machine, "", p.Versions),
			"Median (min–max) of the repeats, runners interleaved, a fresh process each. Ratios "+
				"are taken repeat by repeat, CPU s against CPU s unless the bar says otherwise; "+
				"CPU s = CPU seconds of the process tree per 1,000 samples.",
		)...)
	d.Add("", d.Sheet)
	for _, name := range slices.Sorted(maps.Keys(p.Skipped)) {
		d.Add("", nil, "Skipped "+p.Skipped[name])
	}
	var wrong []string
	for _, f := range familiesOf(p.Cases) {
		r := p.Families[f.Name]
		if r == nil {
			continue
		}
		title := "set " + f.Set
		if f.Window > 0 {
			title += fmt.Sprintf(", windows of %d", f.Window)
		}
		if f.Size > 0 {
			title += fmt.Sprintf(", %d×%d", f.Size, f.Size)
		}
		d.Add(
			fmt.Sprintf(
				"%s: batch %v, %v threads or workers, %v repeats",
				title,
				r.Workload["batch_size"],
				r.Workload["workers"],
				r.Workload["repeats"],
			),
			r.runnerTable(),
		)
		r.Name, wrong = p.Name+"-"+f.Name, append(wrong, r.wrongRunners()...)
		d.Parts = append(d.Parts, r.Document())
	}
	for _, r := range p.Results {
		d.Missed = append(d.Missed, report.Missed(cmp.Or(r.Name, r.Title), r.Checks)...)
	}
	d.Wrong = strings.Join(wrong, "; ")
	return d
}

// CaseWork holds the options that all cases share.
type CaseWork struct {
	Name      string // peers | formats | clients
	Command   string // command line for the report, with the revision of the program
	Revision  string
	BatchSize int
	Workers   int     // worker processes or threads of peers; threads of RoboCache
	Seconds   float64 // minimum duration of a window of whole epochs
	Seed      int
	Tools     runners.Tools
	Sets      *Sets
	Done      *Finished // completed runs; nil disables saving

	opened []io.Closer // servers and sets of the current family
}

// closeOpened closes the servers and sets of the current family.
func (w *CaseWork) closeOpened() {
	for _, c := range w.opened {
		c.Close()
	}
	w.opened = nil
}
