package bench

import (
	"fmt"
	"html/template"
	"strings"
)

// pageOf is what the page of a suite shows.
type pageOf struct {
	*SuiteReport
	Machine Machine
	Figures []template.HTML
	Rows    []*Keys // ranks and merged, in order
	Names   []string
	Cells   [][]string // a key each, a row each
}

func (r *SuiteReport) page() (*pageOf, error) {
	p := &pageOf{SuiteReport: r}
	for _, f := range r.figures() {
		svg, err := f.svg()
		if err != nil {
			return nil, err
		}
		p.Figures = append(p.Figures, template.HTML(svg)) //nolint:gosec // drawn here; gonum escapes the texts
	}
	for _, x := range r.Results {
		p.Machine = x.Merged.Machine
		if len(x.Keys) != 1 {
			p.Rows = append(p.Rows, x.Merged)
		}
		p.Rows = append(p.Rows, x.Keys...)
	}
	at := map[string]int{}
	for i, k := range p.Rows {
		names, values, err := k.columns()
		if err != nil {
			return nil, err
		}
		for n, name := range names {
			j, ok := at[name]
			if !ok {
				j = len(p.Names)
				at[name] = j
				p.Names = append(p.Names, name)
				p.Cells = append(p.Cells, make([]string, len(p.Rows)))
			}
			p.Cells[j][i] = values[n]
		}
	}
	return p, nil
}

var suitePage = template.Must(template.New("suite").Funcs(template.FuncMap{
	"show": Show,
	"mul":  func(a, b float64) float64 { return a * b },
	"rank": func(k *Keys) string {
		if k.Rank < 0 {
			return "all"
		}
		return fmt.Sprint(k.Rank)
	},
	"join": func(s []string) string { return strings.Join(s, "\n") },
}).Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>robocache bench load</title>
<style>body{font:14px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}
pre{background:#f5f5f5;padding:1em;overflow:auto}.bad{color:#b00020;font-weight:bold}.wide{overflow-x:auto}.wide td{font-size:12px;max-width:18em;overflow-wrap:anywhere}svg{max-width:100%;height:auto}</style>
<h1>robocache bench load</h1><pre>{{.Command}}</pre>
<table><tr><th>scenario<th>batch<th>runner<th>samples/s<th>CPU s per 1,000<th>first batch s<th>p50 / p95 / p99 ms<th>wait %<th>peak PSS GB<th>of ideal shuffle<th>frames checked, wrong<th>resume exact<th>page cache<th></tr>
{{range .Results}}{{with .Merged}}<tr><td>{{.Scenario}}<td>{{.BatchSize}}<td>{{.Runner}}<td>{{index .Spread "samples_per_s"}}<td>{{printf "%.3f" (mul 1000 .CPUPerSample)}}<td>{{printf "%.2f" .FirstBatchLatencyS}}<td>{{printf "%.3g / %.3g / %.3g" .P50SampleLatencyMS .P95SampleLatencyMS .P99SampleLatencyMS}}<td>{{show .WaitPct}}<td>{{printf "%.2f" .PSSPeakGB}}<td>{{show .RandomnessVsIdeal}}<td>{{show .FramesChecked}}, {{show .WrongFrames}}<td>{{show .ResumeExact}}<td>{{.CacheState}}<td class="bad">{{.Failed}}</tr>{{end}}{{end}}</table>
<p>Rates: median (min–max) over the repeats, a fresh process each; the other figures are of the run with the median rate. A dash: not measured.</p>
{{range .Figures}}<div>{{.}}</div>{{end}}
<h2>What limits</h2>{{range .Results}}<h3>{{.Merged.Scenario}}, batch {{.Merged.BatchSize}}, {{.Merged.Runner}}</h3><p>{{.Merged.Store}}; {{.Merged.Setting}}</p><pre>{{join .Explain}}</pre>{{if .Merged.SlowestRank}}<p>Slowest rank: {{show .Merged.SlowestRank}} with {{show .Merged.SlowestSamplesPerS}} samples/s.</p>{{end}}{{if .Merged.Notes}}<p>{{join .Merged.Notes}}</p>{{end}}{{if .Merged.Errors}}<p class="bad">{{join .Merged.Errors}}</p>{{end}}{{end}}
<h2>Environment</h2><table>{{with .Machine}}<tr><td>time<td>{{.Time}}<tr><td>processor<td>{{.CPU}}, {{.Cores}} cores<tr><td>memory<td>{{.MemoryGB}} GB<tr><td>kernel<td>{{.Kernel}}<tr><td>load before<td>{{.Load1}}<tr><td>Go<td>{{.Go}}<tr><td>robocache<td>{{.Revision}}{{end}}</table>
<h2>All keys</h2><div class="wide"><table><tr><th>key{{range .Rows}}<th>{{.Scenario}} bs{{.BatchSize}} {{.Runner}}, rank {{rank .}} of {{.WorldSize}}{{end}}</tr>
{{$p := .}}{{range $i, $n := .Names}}<tr><td>{{$n}}{{range index $p.Cells $i}}<td>{{.}}{{end}}</tr>{{end}}</table></div>
<h2>Again</h2><p>The same run, from the dataset on:</p><pre>{{.Command}}</pre></html>
`))
