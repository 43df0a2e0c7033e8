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
	"github.com/goatnote-inc/robocache/internal/guard"
)

// barTable lists the bars of cases that are wanted.
func barTable(rows []CaseResult, wanted func(report.Check) bool) *report.Table {
	t := &report.Table{Head: []string{"workload", "bar", "ours", "the other", "ratio", ""}}
	for _, r := range rows {
		for _, c := range r.Checks {
			if wanted(c) {
				t.AddBar(c.Pass, r.Title, c.Bar.Text, inMetric(c.Bar.Metric, c.Ours), inMetric(c.Bar.Metric, c.Than), c.Bar.Show(c.Ratio), c.Word())
			}
		}
	}
	return t
}

// Performance writes the page of a folder: its page.tmpl. There {{about "FILE"}} says how the bars in a file were measured, {{bars "FILE FILE" "METRIC" …}} lists them but for those
// of some metrics, {{lost "FILE FILE"}} those that are not met, and {{csv "FILE FILE" "COLUMN" …}} some columns of the CSVs of reports.
func Performance(dir string, w io.Writer) (err error) {
	defer guard.Into(&err)
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		guard.Check(robocache.At(err, robocache.Where{"file": name}))
		return b
	}
	measured := func(names string) (all CaseReport) {
		for _, name := range strings.Fields(names) {
			one := guard.Must(ReadCases(filepath.Join(dir, name)))
			all.Command, all.Machine, all.Results = one.Command, one.Machine, append(all.Results, one.Results...)
		}
		return all
	}
	columns := func(names string, columns ...string) string {
		t := &report.Table{Head: columns}
		for _, name := range strings.Fields(names) {
			rows := guard.Must(csv.NewReader(bytes.NewReader(read(name))).ReadAll())
			for i := 1; i < len(rows); i++ {
				var cells []string
				for _, c := range columns {
					at := slices.Index(rows[0], c)
					if at < 0 {
						guard.Fail(report.UnknownName("column of "+name, c, rows[0]))
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
		return t.Markdown()
	}
	verbs := map[string]func(names string, more ...string) string{
		"csv": columns,
		"about": func(name string, _ ...string) string {
			m := measured(name)
			return report.About(m.Command, m.Machine, "", nil)[0]
		},
		"bars": func(names string, without ...string) string {
			return barTable(measured(names).Results, func(c report.Check) bool { return !slices.Contains(without, c.Bar.Metric) }).Markdown()
		},
		"lost": func(names string, _ ...string) string {
			return barTable(measured(names).Results, func(c report.Check) bool { return c.Judged && !c.Pass }).Markdown()
		},
	}
	page := placeText.ReplaceAllStringFunc(string(read("page.tmpl")), func(place string) string {
		words := strings.Split(strings.Trim(place, `{}"`), `"`) // verb, a text, what stands between, a text …
		verb := verbs[strings.TrimSpace(words[0])]
		if verb == nil || len(words) < 2 {
			guard.Fail(report.UnknownName("table of page.tmpl", strings.TrimSpace(words[0]), slices.Sorted(maps.Keys(verbs))))
		}
		var more []string
		for i := 3; i < len(words); i += 2 {
			more = append(more, words[i])
		}
		return verb(words[1], more...)
	})
	_, err = io.WriteString(w, page)
	return err
}

// placeText is where page.tmpl wants a table, {{verb "names" "word" …}}, and what is not closed. Not text/template: see report.Document.page.
var placeText = regexp.MustCompile(`(?m)\{\{.*?(\}\}|$)`)
