package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Table is a result as texts: the same for a terminal, Markdown, CSV and HTML.
type Table struct {
	Head  []string
	Rows  [][]string
	Class map[int]string // pass or fail, by row: colours of HTML
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// AddBar adds a row that is coloured by how a bar came out.
func (t *Table) AddBar(pass bool, cells ...string) {
	if t.Class == nil {
		t.Class = map[int]string{}
	}
	t.Class[len(t.Rows)] = map[bool]string{true: "pass", false: "fail"}[pass]
	t.Add(cells...)
}

// All is the head and the rows.
func (t *Table) All() [][]string { return append([][]string{t.Head}, t.Rows...) }

// Markdown is the table as text.
func (t *Table) Markdown() string {
	var w strings.Builder
	for i, cells := range t.All() {
		cells = slices.Clone(cells)
		for k, c := range cells {
			cells[k] = strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(c)
		}
		fmt.Fprintf(&w, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintln(&w, strings.Repeat("|---", len(cells))+"|")
		}
	}
	return w.String()
}

// CSV is the table as a file.
func (t *Table) CSV() ([]byte, error) {
	var b bytes.Buffer
	err := csv.NewWriter(&b).WriteAll(t.All())
	return b.Bytes(), err
}

// Section is a part of a report.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Table  *Table
	Figure *Figure
	Pre    string
	Web    bool // of the HTML page alone
}

// Raw is the section of the page that has everything as it was measured.
func Raw(v any) Section {
	js, _ := json.MarshalIndent(v, "", "  ")
	return Section{Title: "Raw", Pre: string(js), Web: true}
}

// Document is a finished report: one description, written in every form.
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
			fmt.Fprintln(w, s.Table.Markdown())
		}
		if s.Pre != "" {
			fmt.Fprintf(w, "```\n%s\n```\n\n", s.Pre)
		}
	}
}

// Write puts NAME.json, .csv, .md and .html into dir, and the plots as PNG and SVG. The page needs no other file.
func (d *Document) Write(dir, name string) error {
	var md, html bytes.Buffer
	d.Markdown(&md)
	page := struct {
		*Document
		SVG []template.HTML
	}{d, make([]template.HTML, len(d.Sections))}
	files := map[string][]byte{name + ".md": md.Bytes()}
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
	err := pageTemplate.Execute(&html, page)
	if err != nil {
		return err
	}
	files[name+".html"] = html.Bytes()
	if files[name+".csv"], err = d.Sheet.CSV(); err != nil {
		return err
	}
	for name, b := range files {
		if err := WriteFile(filepath.Join(dir, name), b); err != nil {
			return err
		}
	}
	return WriteJSON(filepath.Join(dir, name+".json"), d.Raw)
}

// WriteFile writes a file, and the folders above it.
func WriteFile(path string, b []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	return robocache.At(err, robocache.Where{"file": path})
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return robocache.At(err, robocache.Where{"file": path})
}

// WriteJSON writes a value, indented.
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
