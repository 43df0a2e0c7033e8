package bench

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
)

// barTable lists the bars of the cases for which wanted returns true.
func barTable(rows []CaseResult, wanted func(report.Check) bool) *report.Table {
	t := &report.Table{Head: []string{"workload", "bar", "ours", "the other", "ratio", ""}}
	for _, r := range rows {
		for _, c := range r.Checks {
			if wanted(c) {
				t.AddBar(
					c.Pass,
					r.Title,
					c.Bar.Text,
					formatMetric(c.Bar.Metric, c.Ours),
					formatMetric(c.Bar.Metric, c.Than),
					c.Bar.Show(c.Ratio),
					c.Word(),
				)
			}
		}
	}
	return t
}

// Performance writes the page of a folder from its page.tmpl. A template contains these
// placeholders: {{about "FILE"}} describes how the bars in a file were measured. {{bars "FILE FILE"
// "METRIC" …}} lists the bars, except those of the given metrics. {{lost "FILE FILE"}} lists the
// bars that are not met. {{csv "FILE FILE" "COLUMN" …}} shows columns of CSV reports.
func Performance(dir string, w io.Writer) (err error) {
	read := func(name string) ([]byte, error) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		return b, robocache.At(err, robocache.Where{"file": name})
	}
	measured := func(names string) (all CaseReport, err error) {
		for _, name := range strings.Fields(names) {
			one, err := ReadCases(filepath.Join(dir, name))
			if err != nil {
				return all, err
			}
			all.Command, all.Machine, all.Results = one.Command, one.Machine, append(
				all.Results,
				one.Results...)
		}
		return all, nil
	}
	columns := func(names string, columns ...string) (string, error) {
		t := &report.Table{Head: columns}
		for _, name := range strings.Fields(names) {
			content, err := read(name)
			if err != nil {
				return "", err
			}
			rows, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
			if err != nil {
				return "", err
			}
			for i := 1; i < len(rows); i++ {
				var cells []string
				for _, c := range columns {
					at := slices.Index(rows[0], c)
					if at < 0 {
						return "", report.UnknownName("column of "+name, c, rows[0])
					}
					text := cmp.Or(rows[i][at], "–")
					if v, err := strconv.ParseFloat(text, 64); err == nil {
						text = report.Digits(v)
					}
					cells = append(cells, text)
				}
				t.Add(cells...)
			}
		}
		return t.Markdown(), nil
	}
	verbs := map[string]func(names string, more ...string) (string, error){
		"csv": columns,
		"about": func(name string, _ ...string) (string, error) {
			m, err := measured(name)
			if err != nil {
				return "", err
			}
			return report.About(m.Command, m.Machine, "", nil)[0], nil
		},
		"bars": func(names string, without ...string) (string, error) {
			m, err := measured(names)
			if err != nil {
				return "", err
			}
			return barTable(
					m.Results,
					func(c report.Check) bool { return !slices.Contains(without, c.Bar.Metric) },
				).Markdown(),
				nil
		},
		"lost": func(names string, _ ...string) (string, error) {
			m, err := measured(names)
			if err != nil {
				return "", err
			}
			return barTable(
					m.Results,
					func(c report.Check) bool { return c.Judged && !c.Pass },
				).Markdown(),
				nil
		},
	}
	content, err := read("page.tmpl")
	if err != nil {
		return err
	}
	var page bytes.Buffer
	end := 0
	for _, place := range placeholderPattern.FindAllIndex(content, -1) {
		page.Write(content[end:place[0]])
		end = place[1]
		// verb, quoted text, separator, quoted text …
		words := strings.Split(strings.Trim(string(content[place[0]:end]), `{}"`), `"`)
		verb := verbs[strings.TrimSpace(words[0])]
		if verb == nil || len(words) < 2 {
			return report.UnknownName(
				"table of page.tmpl",
				strings.TrimSpace(words[0]),
				slices.Sorted(maps.Keys(verbs)),
			)
		}
		var more []string
		for i := 3; i < len(words); i += 2 {
			more = append(more, words[i])
		}
		text, err := verb(words[1], more...)
		if err != nil {
			return err
		}
		page.WriteString(text)
	}
	page.Write(content[end:])
	_, err = w.Write(page.Bytes())
	return err
}

// placeholderPattern matches a placeholder of page.tmpl, {{verb "names" "word" …}}, also if it is
// not closed. report.Document.htmlPage explains why this is not text/template.
var placeholderPattern = regexp.MustCompile(`(?m)\{\{.*?(\}\}|$)`)
