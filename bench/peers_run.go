package bench

import (
	"context"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
)

// PeerReport is a finished `bench peers`.
type PeerReport struct {
	Name     string             `json:"-"` // peers, formats
	Command  string             `json:"command"`
	Machine  report.Machine     `json:"machine"`
	Versions map[string]string  `json:"versions"`
	Repeats  int                `json:"repeats"`
	Rows     []PeerRow          `json:"-"`
	Verdicts []RowVerdict       `json:"rows"`
	Families map[string]*Report `json:"families"`
}

// RowVerdict is a row and how its bars came out.
type RowVerdict struct {
	Name     string    `json:"name"`
	Title    string    `json:"title"`
	Family   string    `json:"family"`
	Repeats  int       `json:"repeats"`
	Verdicts []Verdict `json:"bars"`
}

// RunPeers runs the rows, a family at a time: all runners of its rows in one interleaved run. keep is given what there is after each family.
func RunPeers(ctx context.Context, rows []PeerRow, w PeerWork, repeats int, timeout time.Duration, keep func(*PeerReport) error, log func(format string, a ...any)) (*PeerReport, error) {
	defer w.done()
	p := &PeerReport{Name: w.Name, Command: w.Command, Rows: rows, Repeats: repeats, Versions: map[string]string{}, Families: map[string]*Report{}, Machine: report.ThisMachine(w.Revision)}
	for _, f := range familiesOf(rows) {
		names := runnersOf(rows, f.name)
		if len(names) == 0 {
			continue
		}
		log("== %s", f.name)
		runners, err := PeerRunners(ctx, f.name, names, &w)
		if err != nil {
			return p, err
		}
		n := repeats
		if f.slow {
			n = (repeats + 1) / 2
		}
		results, err := Run(ctx, runners, n, timeout, log)
		w.done()
		if err != nil {
			return p, err
		}
		for _, r := range results {
			for _, o := range r.Runs {
				for k, v := range o.Versions {
					p.Versions[k] = v
				}
			}
		}
		p.Families[f.name] = &Report{Title: "bench " + w.Name + ": " + f.name, Unit: "samples", Machine: p.Machine, Results: results,
			Workload: map[string]any{"set": f.set, "window": f.window, "image_size": f.size, "batch_size": w.BatchSize, "workers": w.Workers, "seconds": w.Seconds, "seed": w.Seed, "repeats": n}}
		for _, row := range rows {
			if row.Family != f.name {
				continue
			}
			v := RowVerdict{Name: row.Name, Title: row.Title, Family: row.Family, Repeats: n}
			for _, b := range row.Bars {
				v.Verdicts = append(v.Verdicts, b.Judge(results))
			}
			p.Verdicts = append(p.Verdicts, v)
		}
		p.sort()
		if err := keep(p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// runnersOf is the runners of a family's rows, each once, in the rows' order.
func runnersOf(rows []PeerRow, family string) []string {
	var out []string
	seen := map[string]bool{}
	for _, r := range rows {
		if r.Family != family {
			continue
		}
		for _, a := range r.Runners {
			if !seen[a] {
				seen[a] = true
				out = append(out, a)
			}
		}
	}
	return out
}

// sort brings the verdicts into the order of the rows asked for.
func (p *PeerReport) sort() {
	var out []RowVerdict
	for _, r := range p.Rows {
		for _, v := range p.Verdicts {
			if v.Name == r.Name {
				out = append(out, v)
			}
		}
	}
	p.Verdicts = out
}
