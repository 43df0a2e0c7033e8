package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/quality"
)

const (
	histogramBins = 40
	chartWidth    = 260
	rowHeight     = 26
)

// writeDistributions writes a card for each metric that varies: one histogram for each task.
func writeDistributions(b *bytes.Buffer, t *quality.Table) {
	b.WriteString("<h2>Distributions by task</h2>")
	tasks := tasksOf(t)
	if more := len(tasks) - tasksDrawn; more > 0 {
		fmt.Fprintf(
			b,
			"<p>The %d largest tasks are drawn; %d others are not.</p>",
			tasksDrawn,
			more,
		)
		tasks = tasks[:tasksDrawn]
	}
	var constant []string
	b.WriteString(`<div class="grid">`)
	for _, m := range quality.Metrics() {
		values := finiteOf(t.Column(m.Name))
		slices.Sort(values)
		if len(values) < 2 || values[0] == values[len(values)-1] {
			constant = append(constant, m.Name)
			continue
		}
		fmt.Fprintf(
			b,
			`<div class="card"><h3>%s%s</h3><small>%s</small>`,
			html.EscapeString(m.Name),
			html.EscapeString(unitText(m.Unit)),
			html.EscapeString(m.Summary),
		)
		writeHistograms(b, t, m.Name, tasks, values)
		b.WriteString("</div>")
	}
	b.WriteString("</div>")
	if constant != nil {
		fmt.Fprintf(b, "<p>The same in all episodes, or not defined: %s.</p>",
			html.EscapeString(strings.Join(constant, ", ")))
	}
}

func unitText(unit string) string {
	if unit == "" {
		return ""
	}
	return " (" + unit + ")"
}

// writeHistograms draws the histograms of one metric. The axis spans the middle 98 % of the values
// and a tenth more; the outer bars hold the rest. sorted are the finite values.
func writeHistograms(
	b *bytes.Buffer, t *quality.Table, name string, tasks []string, sorted []float64,
) {
	n := len(sorted)
	low, high := sorted[n/100], sorted[n-1-n/100]
	if low == high {
		low, high = sorted[0], sorted[n-1]
	}
	column := t.Column(name)
	height := rowHeight*len(tasks) + 14
	fmt.Fprintf(b, `<svg viewBox="0 0 %d %d" role="img"><title>%s</title>`,
		chartWidth, height, html.EscapeString(name))
	for k, task := range tasks {
		var bins [histogramBins]int
		most := 1
		for i, v := range column {
			if t.Tasks[i] != task || v-v != 0 {
				continue
			}
			at := int(float64(histogramBins) * (v - low) / (high - low))
			at = min(max(at, 0), histogramBins-1)
			bins[at]++
			most = max(most, bins[at])
		}
		base := float64(rowHeight * (k + 1))
		var path strings.Builder
		const width = float64(chartWidth) / histogramBins
		for i, count := range bins {
			if count > 0 {
				h := max(1, float64(rowHeight-10)*float64(count)/float64(most))
				fmt.Fprintf(
					&path,
					"M%.1f %.1fv-%.1fh%.1fv%.1fz",
					float64(i)*width,
					base,
					h,
					width-0.5,
					h,
				)
			}
		}
		fmt.Fprintf(b, `<path class="b" d="%s"/><path class="a" d="M0 %.1fH%d"/>`,
			path.String(), base, chartWidth)
		if len(tasks) > 1 {
			fmt.Fprintf(b, `<text class="t" x="0" y="%.1f">%s</text>`,
				base-rowHeight+9, html.EscapeString(shortText(cmp.Or(task, "(none)"), 48)))
		}
	}
	fmt.Fprintf(b, `<text class="t" x="0" y="%d">%s</text><text class="t" x="%d" y="%d" `+
		`text-anchor="end">%s</text></svg>`,
		height-3, shortNumber(low), chartWidth, height-3, shortNumber(high))
}

func shortText(text string, letters int) string {
	if r := []rune(text); len(r) > letters {
		return string(r[:letters-1]) + "…"
	}
	return text
}
