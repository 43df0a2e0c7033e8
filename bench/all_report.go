package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

// AllReport is the report of `robocache-bench all`.
type AllReport struct {
	Command string         `json:"command"`
	Time    string         `json:"time"` // the value of --time
	Took    float64        `json:"seconds"`
	Machine report.Machine `json:"machine"`
	Steps   []AllStep      `json:"steps"`
}

// Row is one figure of a report: what was measured, and its spread.
type Row struct {
	Name   string        `json:"name"` // part, step, runner …
	Metric string        `json:"metric"`
	Value  report.Spread `json:"value"`
}

// nameKeys lists the JSON keys that identify what a figure belongs to. skippedKeys lists the
// objects without figures of their own, such as bars.
var (
	nameKeys = []string{
		"scenario",
		"model",
		"name",
		"arm",
		"pattern",
		"device",
		"threads",
		"world_size",
		"batch_size",
		"image_size",
	}
	skippedKeys = []string{"bars", "verdicts", "workload", "machine", "job"}
)

// collectRows appends all spreads in a JSON value to out.
func collectRows(v any, name []string, out *[]Row) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			collectRows(x, name, out)
		}
	case map[string]any:
		for _, k := range nameKeys {
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
				if b, err := json.Marshal(o); err == nil && json.Unmarshal(b, &s) == nil &&
					s.Max != 0 {
					*out = append(*out, Row{strings.Join(name, ", "), k, s})
				}
			} else if !slices.Contains(skippedKeys, k) {
				collectRows(v[k], name, out)
			}
		}
	}
}

// Rows returns all figures of the report.
func (r *AllReport) Rows() (out []Row) {
	for _, s := range r.Steps {
		var v any
		if json.Unmarshal(s.Result, &v) != nil {
			continue
		}
		name := []string{s.Part, s.Step}
		collectRows(v, name, &out)
		if m, ok := v.(map[string]any); ok && s.Part == "synth" && s.Seconds > 0 {
			if n, ok := m["num_episodes"].(float64); ok {
				out = append(
					out,
					Row{
						strings.Join(name, ", "),
						"episodes_per_s",
						report.SpreadOf([]float64{n / s.Seconds}),
					},
				)
			}
		}
	}
	return out
}

// findFigure returns the figure whose name contains all of names, or an empty spread.
func findFigure(rows []Row, metric string, names ...string) report.Spread {
	for _, r := range rows {
		if r.Metric == metric &&
			!slices.ContainsFunc(
				names,
				func(n string) bool { return !slices.Contains(strings.Split(r.Name, ", "), n) },
			) {
			return r.Value
		}
	}
	return report.Spread{}
}

// Document returns README.md, benchmark_results.json, report.html, report.csv and plots/. Skipped
// steps do not count as wrong.
func (r *AllReport) Document() *report.Document {
	rows := r.Rows()
	d := &report.Document{
		Name:    "report",
		Title:   "robocache-bench all",
		Command: r.Command,
		Raw:     r,
		Called:  map[string]string{".md": "README.md", ".json": "benchmark_results.json"},
		Sheet:   &report.Table{Head: []string{"name", "metric", "median", "min", "max"}},
	}
	d.Add(
		"",
		nil,
		append(
			report.About(r.Command, r.Machine, "", nil),
			fmt.Sprintf(
				"It was given %s and took %.0f s. Medians of the repeats, runners in turn, a "+
					"fresh process each. Raw rows: benchmark_results.json; `--resume` runs what "+
					"is missing.",
				r.Time,
				r.Took,
			),
		)...)
	parts, load := &report.Table{
		Head: []string{"part", "what", "", "command"},
	}, &report.Table{
		Head: []string{
			"",
			"ours/s",
			"torch/s",
			"ours, ms a batch",
			"torch, ms a batch",
			"ours ÷ torch",
		},
	}
	rate := &report.Figure{
		Name:  "plots/throughput_comparison",
		Title: "Trajectories per second (of decoding frames, of training samples)",
		Unit:  "/s",
	}
	wait := &report.Figure{Name: "plots/latency_comparison", Title: "Time of a batch", Unit: "ms"}
	ratio := &report.Figure{
		Name:  "plots/speedup_comparison",
		Title: "Rate, times that of torch's DataLoader",
		Unit:  "times",
	}
	threads := &report.Figure{
		Name:  "plots/threads",
		Title: "Trajectories per second over threads of the loader",
		X:     "threads",
		Unit:  "/s",
	}
	scaling := &report.Figure{}
	var wrong []string
	for _, s := range r.Steps {
		label := s.Part + ", " + s.Step
		if parts.AddBar(s.Failed == "", s.Part, s.Step, s.outcomeText(), "`"+s.Command+
			"`"); s.Missed {
			d.Missed = append(d.Missed, label)
		}
		if s.Failed != "" {
			wrong = append(wrong, label+": "+s.Failed)
		}
		var passes Report
		if s.Part == "load" && json.Unmarshal(s.Result, &passes) == nil {
			for _, x := range passes.Results {
				if why := cmp.Or(x.Failed, x.deliveryFault()); why != "" {
					wrong = append(wrong, label+", "+x.Runner.Name+": "+why)
				}
			}
		}
		if tr := (&TrainReport{}); s.Part == "scale" && json.Unmarshal(s.Result, tr) == nil {
			scaling = tr.scalingFigure("plots/scaling")
		}
		if s.Part == "synth" || s.Part == "threads" {
			continue
		}
		ours, torch := findFigure(rows, "samples_per_s", s.Part, s.Step, "robocache"),
			findFigure(rows, "samples_per_s", s.Part, s.Step, "torch")
		if len(ours.Raw) > 0 {
			rate.Set("robocache", label, ours)
		}
		if len(torch.Raw) > 0 {
			rate.Set("torch", label, torch)
		}
		times := report.Ratios(ours, torch)
		if len(times.Raw) == 0 {
			continue
		}
		ratio.Set("robocache", label, times)
		var batch float64
		fmt.Sscanf(s.Step, "batch %f", &batch)
		ms := func(name string, v report.Spread) string {
			if batch == 0 {
				return "–"
			}
			var out report.Spread
			for _, x := range v.Raw {
				out.Add(1e3 * batch / x)
			}
			wait.Set(name, label, out)
			return report.Short(out)
		}
		load.Add(
			label,
			report.Short(ours),
			report.Short(torch),
			ms("robocache", ours),
			ms("torch", torch),
			report.Short(times),
		)
	}
	all := &report.Table{Head: []string{"what", "metric", "median (min–max)"}}
	for _, x := range rows {
		all.Add(x.Name, x.Metric, report.Short(x.Value))
		d.Sheet.Add(append([]string{x.Name, x.Metric}, report.Cells(x.Value)...)...)
		var n float64
		if _, count, ok := strings.Cut(x.Name, "robocache, "); ok && x.Metric == "samples_per_s" &&
			strings.HasPrefix(x.Name, "threads") {
			fmt.Sscanf(count, "%f threads", &n)
			threads.Point("robocache", n, x.Value.Median)
		}
	}
	if d.Add("Parts", parts); len(load.Rows) > 0 {
		d.Add("Beside torch's DataLoader", load)
	}
	slices.SortFunc(
		rate.Series,
		func(a, b report.Series) int { return strings.Compare(a.Name, b.Name) },
	)
	d.Plot(rate, wait, ratio, threads, scaling)
	d.Add(
		"Claims of the earlier suite that cannot be true, and what was measured",
		claimsTable(rows, r.Took),
	)
	d.Add("All figures", all)
	d.Wrong = strings.Join(wrong, "; ")
	return d
}

// claimsTable lists the claims of the earlier suite that do not hold (all.yaml), each with the
// measured value.
func claimsTable(rows []Row, took float64) *report.Table {
	t := &report.Table{Head: []string{"claim", "why it cannot be", "measured here"}}
	for _, c := range suiteTables().Claims {
		var here []string
		for _, m := range c.Measured {
			text := strings.Join(m.Of, ", ") + ": not measured"
			if v := findFigure(rows, m.Metric, m.Of...); len(v.Raw) > 0 {
				text = strings.Join(m.Of[1:], " ") + " " + report.Short(v) + m.Unit
			}
			here = append(here, text)
		}
		if here == nil {
			here = []string{fmt.Sprintf("%.0f s, what was skipped is named above", took)}
		}
		t.Add(c.Claim, c.Why, strings.Join(here, "; "))
	}
	return t
}

// ReadAllReport reads the results in the folder of `robocache-bench all`.
func ReadAllReport(dir string) (*AllReport, error) {
	r, path := &AllReport{}, filepath.Join(dir, "benchmark_results.json")
	err := report.ReadJSON(path, r)
	if err == nil && len(r.Steps) == 0 {
		err = robocache.At(
			errors.New("the file has no rows of robocache-bench all"),
			robocache.Where{"file": path},
		)
	}
	return r, err
}

// ReadRows returns the figures of a measurement. path is the folder of `robocache-bench all`, or
// any JSON report.
func ReadRows(path string) (out []Row, err error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		r, err := ReadAllReport(path)
		return r.Rows(), err
	}
	var v any
	err = report.ReadJSON(path, &v)
	if collectRows(v, nil, &out); err == nil && len(out) == 0 {
		err = robocache.At(errors.New("the file has no figures"), robocache.Where{"file": path})
	}
	return out, err
}

// minChange is the smallest relative change that counts. The spreads must also not overlap.
const minChange = 0.03

// isHigherBetter reports whether a larger value of the metric is an improvement.
func isHigherBetter(metric string) bool {
	return strings.Contains(metric, "per_s") && !strings.HasPrefix(metric, "cpu") ||
		slices.Contains([]string{"utilisation", "ratio", "share", "possible"}, metric)
}

// Compare compares two measurements figure by figure. It returns a table and the number of figures
// that became worse by more than both spreads.
func Compare(a, b []Row) (t *report.Table, regressions int) {
	t = &report.Table{Head: []string{"what", "metric", "first", "second", "second ÷ first", ""}}
	for _, x := range a {
		i := slices.IndexFunc(
			b,
			func(y Row) bool { return y.Name == x.Name && y.Metric == x.Metric },
		)
		if i < 0 {
			t.Add(x.Name, x.Metric, report.Short(x.Value), "–", "", "in the first alone")
			continue
		}
		y := b[i].Value
		times := y.Median / x.Value.Median
		more, less := y.Min > x.Value.Max &&
			times > 1+minChange, y.Max < x.Value.Min &&
			times < 1-minChange
		word := ""
		switch {
		case more == isHigherBetter(x.Metric) && (more || less):
			word = "better"
		case more || less:
			word = "**worse**"
			regressions++
		}
		t.AddBar(
			word != "**worse**",
			x.Name,
			x.Metric,
			report.Short(x.Value),
			report.Short(y),
			report.Digits(times),
			word,
		)
	}
	for _, y := range b {
		if !slices.ContainsFunc(
			a,
			func(x Row) bool { return y.Name == x.Name && y.Metric == x.Metric },
		) {
			t.Add(y.Name, y.Metric, "–", report.Short(y.Value), "", "in the second alone")
		}
	}
	return t, regressions
}
