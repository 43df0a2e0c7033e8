package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// table is a result as texts: the same for a terminal, Markdown, CSV and HTML.
type Table struct {
	Head  []string
	Rows  [][]string
	Class map[int]string // pass or fail, by row: colours of HTML
}

func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// addBar adds a row that is coloured by how a bar came out.
func (t *Table) AddBar(pass bool, cells ...string) {
	if t.Class == nil {
		t.Class = map[int]string{}
	}
	t.Class[len(t.Rows)] = map[bool]string{true: "pass", false: "fail"}[pass]
	t.Add(cells...)
}

func (t *Table) markdown(w io.Writer) {
	line := func(cells []string) {
		for i, c := range cells {
			cells[i] = strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(c)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	line(slices.Clone(t.Head))
	fmt.Fprintln(w, strings.Repeat("|---", len(t.Head))+"|")
	for _, r := range t.Rows {
		line(slices.Clone(r))
	}
}

func (t *Table) Csv() ([]byte, error) {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	err := c.WriteAll(append([][]string{t.Head}, t.Rows...))
	return b.Bytes(), err
}

// section is a part of a report.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Table  *Table
	Figure *Figure
	Pre    string
	Web    bool // of the HTML page alone
}

// document is a finished report: one description, written in every form.
type Document struct {
	Title, Command string
	Sections       []Section
	Sheet          *Table // of the CSV
	Raw            any    // of the JSON
}

// Markdown writes the report as docs/PERFORMANCE.md shows it.
func (d *Document) Markdown(w io.Writer) {
	for _, s := range d.Sections {
		if s.Web {
			continue
		}
		if s.Title != "" {
			fmt.Fprintf(w, "\n### %s\n\n", s.Title)
		}
		for _, p := range s.Text {
			fmt.Fprint(w, p, "\n\n")
		}
		if s.Table != nil {
			s.Table.markdown(w)
			fmt.Fprintln(w)
		}
	}
}

// write puts NAME.json, .csv, .md and .html into dir, and the plots as PNG and SVG. The page needs no other file.
func (d *Document) Write(dir, name string) error {
	js, err := json.MarshalIndent(d.Raw, "", "  ")
	if err != nil {
		return err
	}
	files := map[string][]byte{name + ".json": append(js, '\n')}
	if files[name+".csv"], err = d.Sheet.Csv(); err != nil {
		return err
	}
	var md, html bytes.Buffer
	d.Markdown(&md)
	page := struct {
		*Document
		SVG []template.HTML
	}{d, make([]template.HTML, len(d.Sections))}
	for i, s := range d.Sections {
		if s.Figure == nil {
			continue
		}
		png, svg, err := s.Figure.render()
		if err != nil {
			return err
		}
		files[s.Figure.Name+".png"], files[s.Figure.Name+".svg"] = png, svg
		at := bytes.Index(svg, []byte("<svg")) // an element within a page has no header and no name space of its own
		inner := strings.NewReplacer(`xmlns="http://www.w3.org/2000/svg"`, "", `xmlns:xlink="http://www.w3.org/1999/xlink"`, "").Replace(string(svg[max(at, 0):]))
		page.SVG[i] = template.HTML(inner) //nolint:gosec // drawn here; gonum escapes the texts
	}
	if err := pageTemplate.Execute(&html, page); err != nil {
		return err
	}
	files[name+".md"], files[name+".html"] = md.Bytes(), html.Bytes()
	for name, b := range files {
		if err := WriteFile(filepath.Join(dir, name), b); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file, and the folders above it.
func WriteFile(path string, b []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	return robocache.At(err, robocache.Where{"file": path})
}

// writeJSON writes a value, indented.
func WriteJSON(path string, v any) error {
	js, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(js, '\n'))
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>{{.Title}}</title>
<style>body{font:14px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top;max-width:24em;overflow-wrap:anywhere}
pre{background:#f5f5f5;padding:1em;overflow:auto}.fail{background:#fbe3e0}.pass{background:#e4f3e4}.wide{overflow-x:auto}svg{max-width:100%;height:auto}</style>
<h1>{{.Title}}</h1><pre>{{.Command}}</pre>
{{$svg := .SVG}}{{range $i, $s := .Sections}}{{with .Title}}<h2>{{.}}</h2>{{end}}{{range .Text}}<p>{{.}}</p>{{end}}
{{with .Table}}{{$class := .Class}}<div class="wide"><table><tr>{{range .Head}}<th>{{.}}{{end}}</tr>
{{range $k, $r := .Rows}}<tr class="{{index $class $k}}">{{range $r}}<td>{{.}}{{end}}</tr>
{{end}}</table></div>{{end}}{{with index $svg $i}}<div>{{.}}</div>{{end}}{{with .Pre}}<pre>{{.}}</pre>{{end}}
{{end}}</html>
`))

// about says where and of what figures were taken.
func About(command string, m Machine, device string, versions map[string]string) []string {
	v := []string{m.Go}
	for _, k := range slices.Sorted(maps.Keys(versions)) {
		v = append(v, k+" "+versions[k])
	}
	return []string{fmt.Sprintf("`%s` on %s: %s, %d cores, %.1f GB, kernel %s%s, load %s at the start, revision %s.", command, m.Time.Format("2006-01-02 15:04 MST"), m.CPU, m.Cores, m.MemoryGB, m.Kernel, device, m.Load1, m.Revision),
		"Versions: " + strings.Join(v, ", ") + "."}
}

// raw is the section of the page that has everything as it was measured.
func Raw(v any) Section {
	js, _ := json.MarshalIndent(v, "", "  ")
	return Section{Title: "Raw", Pre: string(js), Web: true}
}

// short is a spread with three digits.
func Short(s Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	if s.Min == s.Max {
		return Digits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Digits(s.Median), Digits(s.Min), Digits(s.Max))
}

// digits gives three digits, and no fewer before the point.
func Digits(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// cells are a spread's median, minimum and maximum for a CSV; empty where there is none.
func Cells(s Spread) []string {
	if len(s.Raw) == 0 {
		return []string{"", "", ""}
	}
	return []string{Decimal(s.Median), Decimal(s.Min), Decimal(s.Max)}
}

func Decimal(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }

// unknownName is the error of a name that a table of cases does not have.
func UnknownName(what, got string, known []string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "bench peers", Msg: "no " + what + " named " + strconv.Quote(got), Hint: "one of " + strings.Join(known, ", ")}
}
