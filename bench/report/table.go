package report

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

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

// Document is a finished report: one description, written in every form.
type Document struct {
	Name, Title, Command string // Name: of its files
	Sections             []Section
	Sheet                *Table            // of the CSV
	Raw                  any               // of the JSON
	Files                map[string]any    // beside them: a *Table as CSV, another value as JSON
	Called               map[string]string // other names, by suffix: .md, .json
	Parts                []*Document       // written beside it

	Wrong  string   // why the figures do not count: exit code 1
	Missed []string // bars: exit code 3
}

// Add adds a section.
func (d *Document) Add(title string, t *Table, text ...string) {
	d.Sections = append(d.Sections, Section{Title: title, Table: t, Text: text})
}

// Plot adds the plots that have something.
func (d *Document) Plot(figures ...*Figure) {
	for _, f := range figures {
		if len(f.Groups)+len(f.Curves) > 0 {
			d.Sections = append(d.Sections, Section{Figure: f})
		}
	}
}

// Plots reports whether the document has a figure.
func (d *Document) Plots() bool {
	return slices.ContainsFunc(d.Sections, func(s Section) bool { return s.Figure != nil })
}

// WithRaw ends the page with everything as it was measured.
func (d *Document) WithRaw() *Document {
	js, _ := json.MarshalIndent(d.Raw, "", "  ")
	d.Sections = append(d.Sections, Section{Title: "Raw", Pre: string(js), Web: true})
	return d
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

// Write puts NAME.json, .csv, .md and .html into dir, the plots as PNG and SVG, and what else it
// has. The page needs no other file.
func (d *Document) Write(dir string) error {
	var md bytes.Buffer
	d.Markdown(&md)
	files := map[string][]byte{}
	for name, content := range d.Files {
		encode := JSON
		if t, ok := content.(*Table); ok {
			encode = func(any) ([]byte, error) { return t.CSV() }
		}
		var err error
		if files[name], err = encode(content); err != nil {
			return err
		}
	}
	drawn := make([]string, len(d.Sections))
	for i, s := range d.Sections {
		if s.Figure == nil {
			continue
		}
		c := s.Figure.draw()
		png, err := c.PNG()
		svg, err2 := c.SVG()
		if err = cmp.Or(err, err2); err != nil {
			return err
		}
		files[s.Figure.Name+".png"], files[s.Figure.Name+".svg"] = png, svg
		// An element within a page has no name space of its own.
		drawn[i] = strings.NewReplacer(
			` xmlns="http://www.w3.org/2000/svg"`,
			"",
			` xmlns:xlink="http://www.w3.org/1999/xlink"`,
			"",
		).
			Replace(string(svg))
	}
	js, err := JSON(d.Raw)
	csv, err2 := d.Sheet.CSV()
	if err = cmp.Or(err, err2); err != nil {
		return err
	}
	for suffix, b := range map[string][]byte{
		".md":   md.Bytes(),
		".html": d.page(drawn),
		".csv":  csv,
		".json": js,
	} {
		files[cmp.Or(d.Called[suffix], d.Name+suffix)] = b
	}
	for name, b := range files {
		if err := WriteFile(filepath.Join(dir, name), b); err != nil {
			return err
		}
	}
	for _, part := range d.Parts {
		if err := part.Write(dir); err != nil {
			return err
		}
	}
	return nil
}

const pageHead = `<!doctype html><html lang="en"><meta charset="utf-8"><title>%[1]s</title>
<style>body{font:14px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top;max-width:24em;overflow-wrap:anywhere}
pre{background:#f5f5f5;padding:1em;overflow:auto}.fail{background:#fbe3e0}.pass{background:#e4f3e4}.wide{overflow-x:auto}svg{max-width:100%%;height:auto}</style>
<h1>%[1]s</h1><pre>%[2]s</pre>
`

// page is the report as HTML; drawn are the figures of its sections. Not html/template: a program
// that holds one keeps every exported method, 5 MB of this one.
func (d *Document) page(drawn []string) []byte {
	var b bytes.Buffer
	put := func(format, text string) {
		if text != "" {
			fmt.Fprintf(&b, format, html.EscapeString(text))
		}
	}
	fmt.Fprintf(&b, pageHead, html.EscapeString(d.Title), html.EscapeString(d.Command))
	for i, s := range d.Sections {
		put("<h2>%s</h2>", s.Title)
		for _, t := range s.Text {
			put("<p>%s</p>", t)
		}
		if s.Table != nil {
			b.WriteString(`<div class="wide"><table>`)
			for k, cells := range s.Table.All() {
				cell := "<td>"
				if k == 0 {
					cell = "<th>"
				}
				fmt.Fprintf(&b, "<tr class=%q>", s.Table.Class[k-1])
				for _, c := range cells {
					b.WriteString(cell + html.EscapeString(c))
				}
				b.WriteString("</tr>\n")
			}
			b.WriteString("</table></div>")
		}
		b.WriteString(drawn[i])
		put("<pre>%s</pre>\n", s.Pre)
	}
	b.WriteString("</html>\n")
	return b.Bytes()
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

// Data reads a table in the program: YAML, by the names of JSON. A test reads every one.
func Data[T any](text []byte) (v T) {
	var any any
	err := yaml.Unmarshal(text, &any)
	if err == nil {
		err = Fill(&v, any)
	}
	if err != nil {
		panic(err)
	}
	return v
}

// Fill sets what from names, and refuses what v does not have.
func Fill(v, from any) error {
	js, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(js))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// JSON is a value as a file, indented.
func JSON(v any) ([]byte, error) {
	js, err := json.MarshalIndent(v, "", "  ")
	return append(js, '\n'), err
}

// WriteJSON writes a value.
func WriteJSON(path string, v any) error {
	js, err := JSON(v)
	if err != nil {
		return err
	}
	return WriteFile(path, js)
}
