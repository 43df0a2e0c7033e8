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

// Table holds a result as text. It can be written for a terminal, and as Markdown, CSV and HTML.
type Table struct {
	Head  []string
	Rows  [][]string
	Class map[int]string // pass or fail, by row index: selects the HTML color
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// AddBar appends a row that is colored by whether a bar passed.
func (t *Table) AddBar(pass bool, cells ...string) {
	if t.Class == nil {
		t.Class = map[int]string{}
	}
	t.Class[len(t.Rows)] = map[bool]string{true: "pass", false: "fail"}[pass]
	t.Add(cells...)
}

// All returns the head and the rows.
func (t *Table) All() [][]string { return append([][]string{t.Head}, t.Rows...) }

// Markdown returns the table as Markdown.
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

// CSV returns the table as CSV.
func (t *Table) CSV() ([]byte, error) {
	var b bytes.Buffer
	err := csv.NewWriter(&b).WriteAll(t.All())
	return b.Bytes(), err
}

// Section is one section of a report.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Table  *Table
	Figure *Figure
	Pre    string
	Web    bool // only in the HTML page
}

// Document is a finished report, which can be written in all formats.
type Document struct {
	Name, Title, Command string // Name is the base name of the files
	Sections             []Section
	Sheet                *Table // content of the CSV
	Raw                  any    // content of the JSON
	// additional files: a *Table becomes CSV, other values become JSON
	Files  map[string]any
	Called map[string]string // replaced file names, by suffix (.md, .json)
	Parts  []*Document       // reports written to the same folder

	Wrong  string   // why the figures are invalid (exit code 1)
	Missed []string // missed bars (exit code 3)
}

// Add appends a section.
func (d *Document) Add(title string, t *Table, text ...string) {
	d.Sections = append(d.Sections, Section{Title: title, Table: t, Text: text})
}

// Plot appends the figures that are not empty.
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

// WithRaw appends the raw data to the HTML page.
func (d *Document) WithRaw() *Document {
	js, _ := json.MarshalIndent(d.Raw, "", "  ")
	d.Sections = append(d.Sections, Section{Title: "Raw", Pre: string(js), Web: true})
	return d
}

// Markdown writes the report as Markdown, as docs/PERFORMANCE.md includes it.
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

// Write writes NAME.json, .csv, .md and .html into dir, together with plots as PNG and SVG and the
// additional files. The HTML page needs no other file.
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
		c := s.Figure.drawPlot()
		png, err := c.PNG()
		svg, err2 := c.SVG()
		if err = cmp.Or(err, err2); err != nil {
			return err
		}
		files[s.Figure.Name+".png"], files[s.Figure.Name+".svg"] = png, svg
		// SVG elements inside HTML need no namespace.
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
		".html": d.htmlPage(drawn),
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

// htmlPage returns the report as HTML; drawn contains the SVG of each section. It does not use
// html/template, because the linker then keeps every exported method, which adds 5 MB to this
// program.
func (d *Document) htmlPage(drawn []string) []byte {
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

// WriteFile writes a file and creates missing folders.
func WriteFile(path string, b []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	return robocache.At(err, robocache.Where{"file": path})
}

// ReadJSON reads a JSON file into v.
func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	return robocache.At(err, robocache.Where{"file": path})
}

// Data parses a YAML table of this program, using the JSON names of fields. It panics on an error;
// a test parses every table.
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

// Fill sets the fields of v that from names. It rejects names that v does not have.
func Fill(v, from any) error {
	js, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(js))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// JSON returns v as indented JSON with a final newline.
func JSON(v any) ([]byte, error) {
	js, err := json.MarshalIndent(v, "", "  ")
	return append(js, '\n'), err
}

// WriteJSON writes v to a JSON file.
func WriteJSON(path string, v any) error {
	js, err := JSON(v)
	if err != nil {
		return err
	}
	return WriteFile(path, js)
}
