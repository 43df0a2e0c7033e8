package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Report is a finished measurement.
type Report struct {
	Title    string         `json:"title"`
	Command  string         `json:"command"`
	Workload map[string]any `json:"workload"`
	Machine  Machine        `json:"machine"`
	Unit     string         `json:"unit"` // what a sample is
	Results  []Result       `json:"results"`
}

// Write puts NAME.json, NAME.csv and NAME.html into dir.
func (r *Report) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	js, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(js, '\n'), 0o644); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	if err := r.writeCSV(filepath.Join(dir, name+".csv")); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, name+".html"))
	if err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	if err := page.Execute(f, r); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (r *Report) writeCSV(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": path})
	}
	defer f.Close()
	w := csv.NewWriter(f)
	_ = w.Write([]string{"arm", "setting", "run", "samples", "seconds", "cpu_seconds", "samples_per_s", "cpu_s_per_1000_samples", "open_s", "first_batch_latency_s", "pss_peak_mb", "shuffle_randomness_frac", "randomness_ideal", "order_sha256"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }
	for _, res := range r.Results {
		for i, o := range res.Runs {
			_ = w.Write([]string{res.Runner.Name, res.Runner.Setting, strconv.Itoa(i), strconv.FormatInt(o.Samples, 10), num(o.Seconds), num(o.CPUSeconds), num(float64(o.Samples) / o.Seconds), num(1000 * o.CPUSeconds / float64(o.Samples)), num(o.OpenS), num(o.FirstBatchS), num(o.PSSPeakMB), num(o.DistinctFrac), num(o.IdealFrac), o.OrderSHA256})
		}
	}
	w.Flush()
	return w.Error()
}

// Bar is one bar of a plot, in percent of the longest.
type bar struct {
	Name, Text string
	Y          int
	Width      float64
}

func bars(results []Result, pick func(Result) Spread) []bar {
	longest := 0.0
	for _, r := range results {
		longest = max(longest, pick(r).Median)
	}
	var out []bar
	for _, r := range results {
		s := pick(r)
		if longest == 0 || len(s.Raw) == 0 {
			continue
		}
		out = append(out, bar{r.Runner.Name, s.String(), 24 * len(out), 420 * s.Median / longest})
	}
	return out
}

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"rate": func(r []Result) []bar { return bars(r, func(x Result) Spread { return x.SamplesPerS }) },
	"cpu":  func(r []Result) []bar { return bars(r, func(x Result) Spread { return x.CPUPer1000 }) },
	"json": func(v any) (string, error) { b, err := json.MarshalIndent(v, "", "  "); return string(b), err },
	"high": func(b []bar) int { return 24*len(b) + 4 },
	"add":  func(a, b int) int { return a + b },
	"fadd": func(a float64, b float64) string { return fmt.Sprintf("%.1f", a+b) },
}).Parse(`<!doctype html><meta charset="utf-8"><title>{{.Title}}</title>
<style>body{font:14px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}pre{background:#f5f5f5;padding:1em;overflow:auto}svg text{font:12px system-ui,sans-serif}</style>
<h1>{{.Title}}</h1><p><code>{{.Command}}</code></p>
<table><tr><th>runner<th>setting<th>{{.Unit}}/s<th>CPU s per 1,000<th>first batch s<th>peak PSS MB</tr>
{{range .Results}}<tr><td>{{.Runner.Name}}<td>{{.Runner.Setting}}{{if .Failed}}<td colspan=4>failed: {{.Failed}}{{else}}<td>{{.SamplesPerS}}<td>{{.CPUPer1000}}<td>{{.FirstBatchS}}<td>{{.PSSPeakMB}}{{end}}</tr>{{end}}</table>
<p>Median (min–max) over the repeats.</p>
{{define "plot"}}<svg width="860" height="{{high .}}" role="img">{{range .}}<text x="0" y="{{add .Y 16}}">{{.Name}}</text><rect x="220" y="{{add .Y 3}}" width="{{printf "%.1f" .Width}}" height="18" fill="#3b6ea5"/><text x="{{fadd .Width 226}}" y="{{add .Y 16}}">{{.Text}}</text>{{end}}</svg>{{end}}
<h2>{{.Unit}} per second</h2>{{template "plot" (rate .Results)}}
<h2>CPU seconds per 1,000</h2>{{template "plot" (cpu .Results)}}
<h2>Workload</h2><pre>{{json .Workload}}</pre><h2>Machine</h2><pre>{{json .Machine}}</pre><h2>Raw</h2><pre>{{json .Results}}</pre>
`))
