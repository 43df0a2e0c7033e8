package report

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
)

const (
	worstCount   = 12 // episodes with images
	tasksDrawn   = 8  // tasks with a row of their own in a distribution
	findingsText = 6  // findings that are listed for an episode
)

const head = `<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>%[1]s</title>
<style>
:root{--fg:#1c2024;--dim:#60646c;--line:#d9d9e0;--bg:#fcfcfd;--card:#fff;--bar:#3e63dd;--bad:#ce2c31}
@media(prefers-color-scheme:dark){:root{--fg:#edeef0;--dim:#b0b4ba;--line:#363a3f;--bg:#111113;--card:#18191b;--bar:#849dff;--bad:#ff9592}}
body{font:14px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}p,small{color:var(--dim)}
table{border-collapse:collapse;width:100%%}td,th{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500}td.n,th.n{text-align:right}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:.8rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.7rem .8rem;overflow:hidden}
.card h3{font-size:.95rem;margin:0 0 .2rem}.card ul{margin:.3rem 0 0;padding-left:1.1rem}
.strip{display:flex;gap:2px;margin:.3rem 0}.strip img{flex:1;min-width:0;border-radius:3px}
svg{display:block;width:100%%;height:auto}.b{fill:var(--bar)}.a{stroke:var(--line);fill:none}.t{fill:var(--dim);font-size:9px}
.bad{color:var(--bad)}
</style>
<h1>%[1]s</h1><p>%[2]s</p>
`

// Write writes the page. ds is the measured dataset, from which the images are read. It may be nil:
// the page then has no images.
func Write(w io.Writer, ctx context.Context, ds robocache.Dataset, t *quality.Table) error {
	var b bytes.Buffer
	title := "Quality of " + t.Dataset
	found := t.Findings()
	byRow := findingsByRow(t, found)
	fmt.Fprintf(&b, head, html.EscapeString(title), html.EscapeString(summaryOf(t, found, byRow)))
	writeFindings(&b, found)
	writeTasks(&b, t, byRow)
	if err := writeWorst(&b, ctx, ds, t, byRow); err != nil {
		return err
	}
	writeDistributions(&b, t)
	writeCoverage(&b, t)
	b.WriteString("</html>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// findingsByRow returns the findings of each row of the table.
func findingsByRow(t *quality.Table, found []robocache.Finding) map[int][]robocache.Finding {
	out := map[int][]robocache.Finding{}
	for _, f := range found {
		if e, ok := episodeOf(&f); ok {
			if row := t.Row(e); row >= 0 {
				out[row] = append(out[row], f)
			}
		}
	}
	return out
}

// episodeOf returns the index of the episode of a finding.
func episodeOf(f *robocache.Finding) (int64, bool) {
	switch e := f.Where["episode"].(type) {
	case int:
		return int64(e), true
	case int64:
		return e, true
	}
	return 0, false
}

func summaryOf(
	t *quality.Table,
	found []robocache.Finding,
	byRow map[int][]robocache.Finding,
) string {
	rows := int64(0)
	for _, n := range t.Lengths {
		rows += n
	}
	text := fmt.Sprintf(
		"%d episodes, %d rows, %d tasks. %d findings in %d episodes. Images: %s.",
		t.Len(), rows, len(tasksOf(t)), len(found), len(byRow), cmp.Or(string(t.Frames), "none"),
	)
	stated, solved := 0, 0
	for _, v := range t.Column("success") {
		if v == v {
			stated++
			solved += int(v)
		}
	}
	if stated > 0 {
		text += fmt.Sprintf(" Success: %d of %d episodes.", solved, stated)
	}
	return text
}

// tasksOf returns the tasks in the order of their number of episodes.
func tasksOf(t *quality.Table) []string {
	count := map[string]int{}
	var names []string
	for _, task := range t.Tasks {
		if count[task]++; count[task] == 1 {
			names = append(names, task)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return count[b] - count[a] })
	return names
}

// writeFindings writes the number of findings of each code.
func writeFindings(b *bytes.Buffer, found []robocache.Finding) {
	b.WriteString("<h2>Findings</h2>")
	if len(found) == 0 {
		b.WriteString("<p>None.</p>")
		return
	}
	count := map[string]int{}
	first := map[string]string{}
	var codes []string
	for _, f := range found {
		if count[f.Code]++; count[f.Code] == 1 {
			codes = append(codes, f.Code)
			first[f.Code] = f.Message
		}
	}
	slices.SortStableFunc(codes, func(a, c string) int { return count[c] - count[a] })
	b.WriteString(`<table><tr><th>finding<th class="n">episodes<th>example</tr>`)
	for _, code := range codes {
		fmt.Fprintf(b, `<tr><td>%s<td class="n">%d<td>%s</tr>`,
			html.EscapeString(code), count[code], html.EscapeString(first[code]))
	}
	b.WriteString("</table>")
}

// writeTasks writes a row for each task.
func writeTasks(b *bytes.Buffer, t *quality.Table, byRow map[int][]robocache.Finding) {
	type totals struct {
		episodes, flagged int
		rows              int64
		durations         []float64
	}
	sums := map[string]*totals{}
	durations := t.Column("duration")
	for i, task := range t.Tasks {
		s := sums[task]
		if s == nil {
			s = &totals{}
			sums[task] = s
		}
		s.episodes++
		s.rows += t.Lengths[i]
		s.durations = append(s.durations, durations[i])
		if len(byRow[i]) > 0 {
			s.flagged++
		}
	}
	b.WriteString(`<h2>Tasks</h2><table><tr><th>task<th class="n">episodes<th class="n">rows` +
		`<th class="n">median duration<th class="n">with findings</tr>`)
	names := tasksOf(t)
	for _, task := range names[:min(len(names), 100)] {
		s := sums[task]
		fmt.Fprintf(
			b,
			`<tr><td>%s<td class="n">%d<td class="n">%d<td class="n">%s s<td class="n">%d</tr>`,
			html.EscapeString(cmp.Or(task, "(none)")),
			s.episodes,
			s.rows,
			shortNumber(medianOf(s.durations)),
			s.flagged,
		)
	}
	b.WriteString("</table>")
	if more := len(names) - 100; more > 0 {
		fmt.Fprintf(b, "<p>%d more tasks are not listed.</p>", more)
	}
}

// medianOf returns the median of the values that are finite, or NaN.
func medianOf(values []float64) float64 {
	finite := finiteOf(values)
	if len(finite) == 0 {
		return math.NaN()
	}
	slices.Sort(finite)
	return finite[len(finite)/2]
}

func finiteOf(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v-v != 0 })
}

// shortNumber returns a number with three significant digits.
func shortNumber(v float64) string {
	if v != v {
		return "–"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
