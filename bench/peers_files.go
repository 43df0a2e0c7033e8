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

// Write puts peers.json, peers.csv, peers.md and peers.html into dir, and JSON, CSV and a page with plots a family.
func (p *PeerReport) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	js, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	var md, sheet, page bytes.Buffer
	p.Markdown(&md)
	c := csv.NewWriter(&sheet)
	_ = c.Write([]string{"workload", "bar", "metric", "arm", "other", "arm_median", "arm_min", "arm_max", "other_median", "other_min", "other_max", "ratio_median", "ratio_min", "ratio_max", "possible", "pass", "note"})
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, row := range p.Verdicts {
		for _, v := range row.Verdicts {
			rec := []string{row.Name, v.Bar.Text, string(v.Bar.Metric), v.Bar.Ours, v.Bar.Than}
			for _, s := range []Spread{v.Ours, v.Than, v.Ratio} {
				if len(s.Raw) == 0 {
					rec = append(rec, "", "", "")
				} else {
					rec = append(rec, num(s.Median), num(s.Min), num(s.Max))
				}
			}
			_ = c.Write(append(rec, num(v.Possible), strconv.FormatBool(v.Pass), v.Note))
		}
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	if err := peerPage.Execute(&page, p); err != nil {
		return err
	}
	for name, b := range map[string][]byte{"peers.json": append(js, '\n'), "peers.csv": sheet.Bytes(), "peers.md": md.Bytes(), "peers.html": page.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return robocache.At(err, robocache.Where{"file": dir})
		}
	}
	for name, r := range p.Families {
		r.Command, r.Machine = p.Command, p.Machine
		if err := r.Write(dir, "peers-"+name); err != nil {
			return err
		}
	}
	return nil
}

var peerPage = template.Must(template.New("peers").Funcs(template.FuncMap{
	"figure": func(m Metric, s Spread) string { return m.text(s) },
	"times":  times,
}).Parse(`<!doctype html><meta charset="utf-8"><title>bench peers</title>
<style>body{font:14px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}.fail{background:#fbe3e0}.pass{background:#e4f3e4}</style>
<h1>bench peers</h1><p><code>{{.Command}}</code></p><p>{{.Machine.CPU}}, {{.Machine.Cores}} cores, {{.Machine.Time}}, revision {{.Machine.Revision}}</p>
<table><tr><th>workload<th>bar<th>ours<th>the other<th>ratio<th></tr>
{{range .Verdicts}}{{$row := .}}{{range .Verdicts}}<tr class="{{if .Pass}}pass{{else}}fail{{end}}"><td>{{$row.Title}}<td>{{.Bar.Text}}<td>{{figure .Bar.Metric .Ours}}<td>{{figure .Bar.Metric .Than}}<td>{{times .Ratio}}<td>{{if .Pass}}pass{{else}}not passed{{end}} {{.Note}}</tr>{{end}}{{end}}</table>
<p>Median (min–max). Plots and raw figures:{{range $k, $v := .Families}} <a href="peers-{{$k}}.html">{{$k}}</a>{{end}}</p>
<p>Versions: {{range $k, $v := .Versions}}{{$k}} {{$v}}; {{end}}</p>
`))
