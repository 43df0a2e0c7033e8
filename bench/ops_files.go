package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"html/template"
	"os"
	"path/filepath"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Write puts ops-DEVICE.json, .csv, .md, .html into dir, and the plots as PNG and SVG.
func (p *OpsReport) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	name := p.stem()
	js, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	var md, page bytes.Buffer
	p.Markdown(&md)
	sheet, err := p.csv()
	if err != nil {
		return err
	}
	files := map[string][]byte{name + ".json": append(js, '\n'), name + ".csv": sheet}
	var svgs []template.HTML
	for _, pl := range p.plots() {
		drawn, wide, err := pl.draw()
		if err != nil {
			return err
		}
		svg, err := svgOf(drawn, wide)
		if err != nil {
			return err
		}
		png, err := pngOf(drawn, wide)
		if err != nil {
			return err
		}
		files[name+"-"+pl.name+".svg"], files[name+"-"+pl.name+".png"] = svg, png
		svgs = append(svgs, template.HTML(svg)) //nolint:gosec // drawn here; gonum escapes the texts
	}
	if err := opsPage.Execute(&page, struct {
		*OpsReport
		Plots []template.HTML
		Raw   string
	}{p, svgs, string(js)}); err != nil {
		return err
	}
	files[name+".md"], files[name+".html"] = md.Bytes(), page.Bytes()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return robocache.At(err, robocache.Where{"file": dir})
		}
	}
	return nil
}

func (p *OpsReport) stem() string {
	if p.Device != nil {
		return "ops-cuda"
	}
	return "ops-cpu"
}

// Keep puts the JSON alone into dir: after each row, so that a run that is broken off has what it measured.
func (p *OpsReport) Keep(dir string) error {
	js, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(dir, p.stem()+".json"), append(js, '\n'), 0o644)
		}
	}
	return robocache.At(err, robocache.Where{"file": dir})
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
	p.builder()
	return p, nil
}

// csv has a line a runner.
func (p *OpsReport) csv() ([]byte, error) {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	_ = c.Write([]string{"row", "curve", "device", "threads", "bytes", "arm", "setting", "us", "us_min", "us_max", "gb_per_s", "us_cold", "us_cold_min", "us_cold_max", "gb_per_s_cold", "failed"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, r := range p.Rows {
		for _, a := range r.Runners {
			rec := []string{r.Name, r.Curve, r.Device, strconv.Itoa(r.Threads), strconv.FormatInt(r.Bytes, 10), a.Name, a.Setting}
			for _, s := range []Spread{a.Hot, a.Cold} {
				if len(s.Raw) == 0 {
					rec = append(rec, "", "", "", "")
				} else {
					rec = append(rec, num(s.Median), num(s.Min), num(s.Max), num(r.gbps(s.Median)))
				}
			}
			_ = c.Write(append(rec, a.Failed))
		}
	}
	c.Flush()
	return b.Bytes(), c.Error()
}

// RunnerCells and BarCells are what the page shows of a row.
func (r *OpsResult) RunnerCells() [][]string {
	var out [][]string
	for _, a := range r.Runners {
		row := []string{a.Name, a.Setting}
		if a.Failed != "" {
			out = append(out, append(row, "failed: "+a.Failed, "", "", ""))
			continue
		}
		for _, s := range []Spread{a.Hot, a.Cold} {
			rate := ""
			if len(s.Raw) > 0 {
				rate = digits(r.gbps(s.Median))
			}
			row = append(row, short(s), rate)
		}
		out = append(out, row)
	}
	return out
}

// BarCells are the verdicts as texts.
func (r *OpsResult) BarCells() [][]string {
	var out [][]string
	for _, v := range r.Verdicts {
		class := "fail"
		if v.Pass {
			class = "pass"
		}
		out = append(out, []string{class, v.Bar.Text, v.Bar.text(v.Figure), v.Other, v.word()})
	}
	return out
}

var opsPage = template.Must(template.New("ops").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>robocache bench ops</title>
<style>body{font:14px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}
pre{background:#f5f5f5;padding:1em;overflow:auto}.fail{background:#fbe3e0}.pass{background:#e4f3e4}svg{max-width:100%;height:auto}</style>
<h1>robocache bench ops</h1><pre>{{.Command}}</pre>
<p>{{.Machine.CPU}}, {{.Machine.Cores}} cores, {{.Machine.Time}}, load {{.Machine.Load1}}, {{.Machine.Go}}, revision {{.Machine.Revision}}{{with .Device}}; {{.Name}}, {{.Driver}}{{end}}{{range $k, $v := .Versions}}, {{$k}} {{$v}}{{end}}</p>
<p>µs a call, median (min–max) of {{.Rounds}} rounds in which the runners took turns. Hot: the same buffers again and again; cold: buffers that together are four times the cache.</p>
{{range .Plots}}<div>{{.}}</div>{{end}}
{{range .Rows}}<h2>{{.Title}}{{if .Threads}}, {{.Threads}} threads{{end}}</h2><p>{{.Name}}; {{.Bytes}} bytes touched; {{.Checked}}</p>
<table><tr><th>runner<th>setting<th>hot µs<th>GB/s<th>cold µs<th>GB/s</tr>{{range .RunnerCells}}<tr>{{range .}}<td>{{.}}{{end}}</tr>{{end}}</table>
{{with .BarCells}}<table>{{range .}}<tr class="{{index . 0}}"><td>{{index . 1}}<td>{{index . 2}}<td>{{index . 3}}<td>{{index . 4}}</tr>{{end}}</table>{{end}}{{end}}
<h2>Again</h2><pre>{{.Command}}</pre><h2>Raw</h2><pre>{{.Raw}}</pre></html>
`))
