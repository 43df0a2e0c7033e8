package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

// AllReport is a finished `bench all`.
type AllReport struct {
	Command string         `json:"command"`
	Time    string         `json:"time"` // that it was given
	Took    float64        `json:"seconds"`
	Machine report.Machine `json:"machine"`
	Steps   []AllStep      `json:"steps"`
}

// Row is a figure of a run's files: what it is of, and its spread.
type Row struct {
	Name   string        `json:"name"` // part, step, runner …
	Metric string        `json:"metric"`
	Value  report.Spread `json:"value"`
}

// identities are the keys that say what a figure is of; bars and ratios to others are left out.
var (
	identities = []string{"scenario", "model", "name", "arm", "pattern", "device", "threads", "world_size", "batch_size", "image_size"}
	notRows    = []string{"bars", "verdicts", "workload", "machine", "job"}
)

// rowsIn finds the spreads in JSON.
func rowsIn(v any, name []string, out *[]Row) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			rowsIn(x, name, out)
		}
	case map[string]any:
		for _, k := range identities {
			x := v[k]
			if o, ok := x.(map[string]any); ok {
				x = o["name"]
			}
			if s := fmt.Sprint(x); x != nil && s != "" && s != "0" && !slices.Contains(name, s) {
				name = append(name[:len(name):len(name)], s)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			var s report.Spread
			if o, ok := v[k].(map[string]any); ok && o["median"] != nil && o["raw"] != nil {
				if b, err := json.Marshal(o); err == nil && json.Unmarshal(b, &s) == nil && s.Max != 0 {
					*out = append(*out, Row{strings.Join(name, ", "), k, s})
				}
			} else if !slices.Contains(notRows, k) {
				rowsIn(v[k], name, out)
			}
		}
	}
}

// Rows are all figures of the run.
func (r *AllReport) Rows() (out []Row) {
	for _, s := range r.Steps {
		var v any
		if json.Unmarshal(s.Result, &v) != nil {
			continue
		}
		name := []string{s.Part, s.Step}
		rowsIn(v, name, &out)
		if m, ok := v.(map[string]any); ok && s.Part == "synth" && s.Seconds > 0 {
			if n, ok := m["num_episodes"].(float64); ok {
				out = append(out, Row{strings.Join(name, ", "), "episodes_per_s", report.SpreadOf([]float64{n / s.Seconds})})
			}
		}
	}
	return out
}

// Verdict says what was wrong (what was skipped is not), and whose bars were missed.
func (r *AllReport) Verdict() (wrong string, missed []string) {
	var out []string
	for _, s := range r.Steps {
		if s.Missed {
			missed = append(missed, s.Part+", "+s.Step)
		}
		if s.Failed != "" {
			out = append(out, s.Part+", "+s.Step+": "+s.Failed)
		}
		var v struct {
			Results []Result `json:"results"`
		}
		if s.Part == "load" && json.Unmarshal(s.Result, &v) == nil {
			for _, x := range v.Results {
				if why := cmp.Or(x.Failed, x.fault()); why != "" {
					out = append(out, s.Part+", "+s.Step+", "+x.Runner.Name+": "+why)
				}
			}
		}
	}
	return strings.Join(out, "; "), missed
}

// find gives a figure of the run; the empty spread where it was not measured.
func find(rows []Row, metric string, names ...string) report.Spread {
	for _, r := range rows {
		if r.Metric == metric && !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(strings.Split(r.Name, ", "), n) }) {
			return r.Value
		}
	}
	return report.Spread{}
}

// Markdown is what is printed.
func (r *AllReport) Markdown(w io.Writer) { r.document().Markdown(w) }

// Write puts README.md, benchmark_results.json, report.html, report.csv and plots/ into dir.
func (r *AllReport) Write(dir string) error {
	err := r.document().Write(dir, "report")
	for from, to := range map[string]string{"report.md": "README.md", "report.json": "benchmark_results.json"} {
		if err == nil {
			err = robocache.At(os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)), robocache.Where{"file": to})
		}
	}
	return err
}

func (r *AllReport) document() *report.Document {
	rows := r.Rows()
	parts := &report.Table{Head: []string{"part", "what", "", "command"}}
	for _, s := range r.Steps {
		parts.AddBar(s.Failed == "", s.Part, s.Step, s.word(), "`"+s.Command+"`")
	}
	load := &report.Table{Head: []string{"", "ours/s", "torch/s", "ours, ms a batch", "torch, ms a batch", "ours ÷ torch"}}
	rate := &report.Figure{Name: "plots/throughput_comparison", Title: "Trajectories per second (of decoding frames, of training samples)", Unit: "/s"}
	wait := &report.Figure{Name: "plots/latency_comparison", Title: "Time of a batch", Unit: "ms"}
	ratio := &report.Figure{Name: "plots/speedup_comparison", Title: "Rate, times that of torch's DataLoader", Unit: "times"}
	threads := &report.Figure{Name: "plots/threads", Title: "Trajectories per second over threads of the loader", X: "threads", Unit: "/s", Linear: true}
	scaling := &report.Figure{}
	for _, s := range r.Steps {
		if s.Part == "synth" || s.Result == nil {
			continue
		}
		ours, torch := find(rows, "samples_per_s", s.Part, s.Step, "robocache"), find(rows, "samples_per_s", s.Part, s.Step, "torch")
		label := s.Part + ", " + s.Step
		if s.Part == "threads" {
			for _, x := range rows {
				var n float64
				if _, count, _ := strings.Cut(x.Name, "robocache, "); x.Metric == "samples_per_s" && strings.HasPrefix(x.Name, s.Part) {
					fmt.Sscanf(count, "%f threads", &n)
					threads.Point("robocache", n, x.Value.Median)
				}
			}
			continue
		}
		if tr := (&TrainReport{}); s.Part == "scale" && json.Unmarshal(s.Result, tr) == nil {
			scaling = tr.scaling("plots/scaling")
		}
		for name, v := range map[string]report.Spread{"robocache": ours, "torch": torch} {
			if len(v.Raw) > 0 {
				rate.Set(name, label, v)
			}
		}
		if len(ours.Raw) == 0 || len(torch.Raw) == 0 {
			continue
		}
		times := report.Ratios(ours, torch)
		ratio.Set("robocache", label, times)
		ms := func(v report.Spread) report.Spread { return report.Spread{} }
		var batch float64
		if _, err := fmt.Sscanf(s.Step, "batch %f", &batch); err == nil {
			ms = func(v report.Spread) report.Spread {
				var out report.Spread
				for _, x := range v.Raw {
					out.Add(1e3 * batch / x)
				}
				return out
			}
			wait.Set("robocache", label, ms(ours))
			wait.Set("torch", label, ms(torch))
		}
		load.Add(label, report.Short(ours), report.Short(torch), report.Short(ms(ours)), report.Short(ms(torch)), report.Short(times))
	}
	slices.SortFunc(rate.Series, func(a, b report.Series) int { return strings.Compare(a.Name, b.Name) })
	all := &report.Table{Head: []string{"what", "metric", "median (min–max)"}}
	sheet := &report.Table{Head: []string{"name", "metric", "median", "min", "max"}}
	for _, x := range rows {
		all.Add(x.Name, x.Metric, report.Short(x.Value))
		sheet.Add(append([]string{x.Name, x.Metric}, report.Cells(x.Value)...)...)
	}
	d := &report.Document{Title: "robocache bench all", Command: r.Command, Sheet: sheet, Raw: r, Sections: []report.Section{
		{Text: append(report.About(r.Command, r.Machine, "", nil), fmt.Sprintf("It was given %s and took %.0f s. Medians of the repeats, runners in turn, a fresh process each. Raw rows: benchmark_results.json; `--resume` runs what is missing.", r.Time, r.Took))},
		{Title: "Parts", Table: parts},
	}}
	if len(load.Rows) > 0 {
		d.Sections = append(d.Sections, report.Section{Title: "Beside torch's DataLoader", Table: load})
	}
	for _, f := range []*report.Figure{rate, wait, ratio, threads, scaling} {
		if len(f.Groups)+len(f.Curves) > 0 {
			d.Sections = append(d.Sections, report.Section{Figure: f})
		}
	}
	d.Sections = append(d.Sections, report.Section{Title: "Claims of the earlier suite that cannot be true, and what was measured", Table: claims(rows, r.Took)}, report.Section{Title: "All figures", Table: all})
	return d
}

// claims are those of the earlier suite that do not hold, each beside what this run measured.
func claims(rows []Row, took float64) *report.Table {
	value := func(unit, metric string, names ...string) string {
		if v := find(rows, metric, names...); len(v.Raw) > 0 {
			return strings.Join(names[1:], " ") + " " + report.Short(v) + unit
		}
		return strings.Join(names, ", ") + ": not measured"
	}
	t := &report.Table{Head: []string{"claim", "why it cannot be", "measured here"}}
	t.Add("training 2–5× faster; data 60–80 % → 5–15 % of the time", "its model cannot run (4×256 by 368×256), its loaders fail in collate; data_time begins after next(), model_time never waits for the GPU",
		value(" of headspace", "utilisation", "transformer", "robocache")+"; "+value(" of headspace", "utilisation", "transformer", "torch"))
	t.Add("baseline 12 trajectories/s, ours 724/s", "one core makes 1,270/s with vectorised NumPy; theirs neither shuffled nor kept each duration",
		value("/s", "samples_per_s", "load", "batch 64", "torch")+"; "+value("/s", "samples_per_s", "load", "batch 64", "robocache"))
	t.Add("485 trajectories/s at batch 16: sub-millisecond, 1–5 ms", "that is 33 ms a batch", value("/s", "samples_per_s", "load", "batch 16", "robocache"))
	t.Add("100 % GPU utilisation: no data bottleneck", "a loop over torch.randn without a loader; 100 % says that a kernel was resident", value(" samples/s", "samples_per_s", "transformer", "headspace"))
	t.Add("256 trajectories in 0.410 ms = 31,200/s; 40–70×, 107×, 477×", "it is 624,390/s; the baseline was np.interp in a double loop, 55 ms where 1.5 ms are needed",
		value(" µs", "us", "ops", "resample-256x100-50x32-f32", "robocache"))
	t.Add("710 GB/s, 1.8 TB/s, linear in length, BF16 0.410 and 0.691 ms", "2.6 MB in 0.41 ms = 6.4 GB/s; 0.185, 0.691, 2.714 ms is ×4 a doubling", value(" µs, the copy of as many bytes", "us", "ops", "resample-256x100-50x32-f32", "memcpy numpy"))
	t.Add("all in 10–20 min", "38 GB of random pixels that nobody reads; gzip 4 at 50 MB/s: 760 s", fmt.Sprintf("%.0f s, what was skipped is named above", took))
	return t
}

// ReadAllReport reads the folder that `bench all` wrote.
func ReadAllReport(dir string) (*AllReport, error) {
	r, path := &AllReport{}, filepath.Join(dir, "benchmark_results.json")
	err := report.ReadJSON(path, r)
	if err == nil && len(r.Steps) == 0 {
		err = robocache.At(errors.New("no rows of bench all are here"), robocache.Where{"file": path})
	}
	return r, err
}

// ReadRows reads the figures of a run: of the folder of `bench all`, or of a JSON report of any measurement.
func ReadRows(path string) (out []Row, err error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		r, err := ReadAllReport(path)
		return r.Rows(), err
	}
	var v any
	err = report.ReadJSON(path, &v)
	if rowsIn(v, nil, &out); err == nil && len(out) == 0 {
		err = robocache.At(errors.New("no figures are here"), robocache.Where{"file": path})
	}
	return out, err
}

// smallest is the change that counts, beyond both spreads.
const smallest = 0.03

// better says whether more of a metric is better.
func better(metric string) bool {
	return strings.Contains(metric, "per_s") && !strings.HasPrefix(metric, "cpu") || slices.Contains([]string{"utilisation", "ratio", "share", "possible"}, metric)
}

// Compare puts two runs beside each other, figure by figure, and counts what got worse beyond both spreads.
func Compare(a, b []Row) (t *report.Table, regressions int) {
	t = &report.Table{Head: []string{"what", "metric", "first", "second", "second ÷ first", ""}}
	for _, x := range a {
		i := slices.IndexFunc(b, func(y Row) bool { return y.Name == x.Name && y.Metric == x.Metric })
		if i < 0 {
			t.Add(x.Name, x.Metric, report.Short(x.Value), "–", "", "in the first alone")
			continue
		}
		y := b[i].Value
		times := y.Median / x.Value.Median
		more, less := y.Min > x.Value.Max && times > 1+smallest, y.Max < x.Value.Min && times < 1-smallest
		word := ""
		switch {
		case more == better(x.Metric) && (more || less):
			word = "better"
		case more || less:
			word = "**worse**"
			regressions++
		}
		t.AddBar(word != "**worse**", x.Name, x.Metric, report.Short(x.Value), report.Short(y), report.Digits(times), word)
	}
	for _, y := range b {
		if !slices.ContainsFunc(a, func(x Row) bool { return y.Name == x.Name && y.Metric == x.Metric }) {
			t.Add(y.Name, y.Metric, "–", report.Short(y.Value), "", "in the second alone")
		}
	}
	return t, regressions
}
