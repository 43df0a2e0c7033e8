package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// CaseReport is a finished `bench peers` or `bench formats`.
type CaseReport struct {
	Name     string             `json:"-"` // peers, formats
	Command  string             `json:"command"`
	Machine  report.Machine     `json:"machine"`
	Versions map[string]string  `json:"versions"`
	Repeats  int                `json:"repeats"`
	Cases    []Case             `json:"-"`
	Results  []CaseResult       `json:"rows"`
	Families map[string]*Report `json:"families"`
}

// CaseResult is a case and how its bars came out.
type CaseResult struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Family  string         `json:"family"`
	Repeats int            `json:"repeats"`
	Checks  []report.Check `json:"bars"`
}

// RunCases runs the cases, a family at a time: all runners of its cases in one interleaved run. keep is given what there is after each family.
func RunCases(ctx context.Context, cases []Case, w CaseWork, repeats int, timeout time.Duration, keep func(*CaseReport) error, log func(format string, a ...any)) (p *CaseReport, err error) {
	defer guard.Into(&err)
	defer w.done()
	p = &CaseReport{Name: w.Name, Command: w.Command, Cases: cases, Repeats: repeats, Versions: map[string]string{}, Families: map[string]*Report{}, Machine: report.ThisMachine(w.Revision)}
	for _, f := range familiesOf(cases) {
		log("== %s", f.name)
		n := repeats
		if f.slow {
			n = (repeats + 1) / 2
		}
		field := guard.Must(w.Runners(ctx, f.name, runnersOf(cases, f.name)))
		for i := range field {
			field[i].done = w.Done
			field[i].key = []any{w.Name, f.name, field[i].Name, w.Sets.folder(), w.BatchSize, w.Workers, w.Seconds, w.Seed, w.Revision, p.Machine.CPU, p.Machine.Cores}
		}
		results := guard.Must(Run(ctx, field, n, timeout, log))
		w.done()
		guard.Check(w.Done.failed())
		for _, r := range results {
			for _, o := range r.Runs {
				maps.Copy(p.Versions, o.Versions)
			}
		}
		p.Families[f.name] = &Report{Title: "bench " + w.Name + ": " + f.name, Unit: "samples", Machine: p.Machine, Command: p.Command, Results: results,
			Workload: map[string]any{"set": f.set, "window": f.window, "image_size": f.size, "batch_size": w.BatchSize, "workers": w.Workers, "seconds": w.Seconds, "seed": w.Seed, "repeats": n}}
		p.check()
		guard.Check(keep(p))
	}
	return p, nil
}

// check checks the bars of the cases that were run.
func (p *CaseReport) check() {
	p.Results = nil
	for _, c := range p.Cases {
		f := p.Families[c.Family]
		if f == nil {
			continue
		}
		r := CaseResult{Name: c.Name, Title: c.Title, Family: c.Family, Repeats: f.Workload["repeats"].(int)}
		for _, b := range c.Bars {
			r.Checks = append(r.Checks, checkBar(b, f.Results))
		}
		p.Results = append(p.Results, r)
	}
}

// runnersOf is the runners of a family's cases, each once, in their order.
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

// Verdict says which runners gave wrong data, and which bars are missed.
func (p *CaseReport) Verdict() (wrong string, missed []string) {
	var why []string
	for _, f := range familiesOf(p.Cases) {
		if r := p.Families[f.name]; r != nil {
			why = append(why, r.wrong()...)
		}
	}
	for _, r := range p.Results {
		missed = append(missed, report.Missed(cmp.Or(r.Name, r.Title), r.Checks)...)
	}
	return strings.Join(why, "; "), missed
}

// ReadCases reads a report of `bench peers` or `bench formats`, or the bars alone of any, as docs/perf has them.
func ReadCases(path string) (*CaseReport, error) {
	p := &CaseReport{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
	return p, report.ReadJSON(path, p)
}

// Markdown writes the report as docs/PERFORMANCE.md shows it.
func (p *CaseReport) Markdown(w io.Writer) { p.document().Markdown(w) }

// Write puts NAME.json, NAME.csv, NAME.md and NAME.html into dir (peers or formats), and the same of each family.
func (p *CaseReport) Write(dir string) error {
	if err := p.document().Write(dir, p.Name); err != nil {
		return err
	}
	for name, r := range p.Families {
		r.Name = p.Name + "-" + name
		if err := r.Write(dir); err != nil {
			return err
		}
	}
	return nil
}

func (p *CaseReport) document() *report.Document {
	bars := barTable(p.Results, func(report.Check) bool { return true })
	d := &report.Document{Title: "robocache bench " + p.Name, Command: p.Command, Sheet: bars, Raw: p, Sections: []report.Section{
		{Text: append(report.About(p.Command, p.Machine, "", p.Versions), "Median (min–max) of the repeats, runners interleaved, a fresh process each. Ratios are taken repeat by repeat, CPU s against CPU s unless the bar says otherwise; CPU s = CPU seconds of the process tree per 1,000 samples.")},
		{Table: bars},
	}}
	for _, f := range familiesOf(p.Cases) {
		r := p.Families[f.name]
		if r == nil {
			continue
		}
		title := "set " + f.set
		if f.window > 0 {
			title += fmt.Sprintf(", windows of %d", f.window)
		}
		if f.size > 0 {
			title += fmt.Sprintf(", %d×%d", f.size, f.size)
		}
		d.Sections = append(d.Sections, report.Section{Title: fmt.Sprintf("%s: batch %v, %v threads or workers, %v repeats", title, r.Workload["batch_size"], r.Workload["workers"], r.Workload["repeats"]), Table: r.table()})
	}
	return d
}

// CaseWork is what all cases share.
type CaseWork struct {
	Name      string // peers, formats
	Command   string // for the report, with the program's revision
	Revision  string
	BatchSize int
	Workers   int     // peers: worker processes or threads; ours: threads
	Seconds   float64 // of a window, at least; whole epochs
	Seed      int
	Tools     runners.Tools
	Sets      *Sets
	Done      *Finished // the runs that are over; nil: nothing is kept

	open []io.Closer // servers and sets of the family that runs
}

// done closes what the runners of a family needed.
func (w *CaseWork) done() {
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}
