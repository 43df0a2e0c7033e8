package quality

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// rule states when the value of a metric is a finding: it deviates from the median of its group to
// the worse side by more than every one of the limits (usualDeviations).
type rule struct {
	code   string
	spread float64 // robust standard deviations of the group
	floor  float64 // in the unit of the metric
	share  float64 // multiplies the median
	rows   float64 // multiplies the median period, for metrics in seconds
	hint   string
}

// Hints of findings.
const (
	hintLook  = "Look at the episode with robocache view, and leave it out if it is bad."
	hintTrim  = "Remove the rest with robocache edit trim."
	hintShift = "Shift the stream with the option align, or record the times of arrival."
	hintClock = "Run robocache doctor on the dataset."
)

// taskEpisodes is the number of episodes from which a task has limits by itself.
const taskEpisodes = 20

// leastEpisodes is the number of values from which a metric has limits.
const leastEpisodes = 8

// normal is the usual range of a metric in a group of episodes.
type normal struct {
	median       float64
	below, above float64 // the largest usual deviations
	count        int     // episodes in the group
	isTask       bool    // whether the group is a task
	isUpper      bool    // whether the value is above
}

// complete computes the columns that depend on all rows.
func (t *Table) complete() {
	addSetColumns(t)
	t.addScores()
}

// Merge returns the table of all parts, which were measured as shards: the rows in the order of
// their episodes, with the metrics of the set.
func Merge(parts []*Table) (*Table, error) {
	var all *Table
	n := 0
	for _, p := range parts {
		n += p.Len()
	}
	type place struct {
		part *Table
		row  int
	}
	places := make([]place, 0, n)
	for _, p := range parts {
		if all == nil {
			all = newTable(n, p.SketchWidth, p.HashWidth)
			all.copyHead(p)
		}
		if p.SketchWidth != all.SketchWidth || p.HashWidth != all.HashWidth ||
			p.Frames != all.Frames {
			return nil, robocache.Malformed("quality", nil,
				"the shards were measured with different options")
		}
		if p.Fingerprint != all.Fingerprint || p.State != all.State {
			return nil, robocache.Malformed("quality", nil,
				"the dataset changed while its shards were measured").
				WithHint("Plan the work again.")
		}
		for row := range p.Episodes {
			places = append(places, place{p, row})
		}
	}
	if all == nil {
		return newTable(0, 0, 0), nil
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return int(min(1, max(-1, a.part.Episodes[a.row]-b.part.Episodes[b.row])))
	})
	for i, p := range places {
		all.copyRow(i, p.part, p.row)
	}
	all.complete()
	return all, nil
}

// Findings returns the episodes that deviate from the others, and those that could not be measured.
func (t *Table) Findings() []robocache.Finding {
	out := []robocache.Finding{}
	for i, problem := range t.Errors {
		if problem != "" {
			out = append(out, robocache.Finding{
				Severity: robocache.SeverityError, Code: "not-measured",
				Where:   robocache.Where{"episode": t.Episodes[i]},
				Message: "the episode could not be measured: " + problem,
				Hint:    hintClock,
			})
		}
	}
	if t.Timeless {
		out = append(out, robocache.Finding{
			Severity: robocache.SeverityInfo, Code: "rate-assumed",
			Message: fmt.Sprintf("the rows have no clock: seconds are computed for %d Hz",
				assumedRate),
			Hint: "Pass " + robocache.Option("rows_hz", assumedRate) +
				" with the rate of the rows.",
		})
	}
	t.eachFinding(func(row int, m *metric, n *normal) {
		out = append(out, t.findingOf(row, m, n))
	})
	return out
}

// findingOf returns the finding of a value.
func (t *Table) findingOf(row int, m *metric, n *normal) robocache.Finding {
	evidence := "measured"
	if m.Inferred {
		evidence = "inferred"
	}
	group := "dataset"
	if n.isTask {
		group = "task"
	}
	low, high := n.median-n.below, n.median+n.above
	bound := "at least " + formatValue(low)
	if n.isUpper {
		bound = "at most " + formatValue(high)
	}
	value := t.Columns[m.Name][row]
	unit := ""
	if m.Unit != "" && m.Unit != "count" && m.Unit != "share" {
		unit = " " + m.Unit
	}
	where := robocache.Where{
		"episode": t.Episodes[row], "metric": m.Name, "evidence": evidence,
	}
	if from, to, known := t.Span(row, m.Name); known {
		where["from_s"], where["to_s"] = math.Round(from*1e3)/1e3, math.Round(to*1e3)/1e3
	}
	return robocache.Finding{
		Severity: robocache.SeverityWarning, Code: m.rule.code,
		Where: where,
		Message: fmt.Sprintf("%s is %s%s; of the %d episodes of the %s the median is %s, and "+
			"usual is %s", m.Name, formatValue(value), unit, n.count, group,
			formatValue(n.median), bound),
		Hint: m.rule.hint,
	}
}

func formatValue(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// eachFinding calls yield for each value that is a finding, metric by metric.
func (t *Table) eachFinding(yield func(row int, m *metric, n *normal)) {
	tasks := map[string][]int{}
	for i, task := range t.Tasks {
		tasks[task] = append(tasks[task], i)
	}
	period := 1 / medianOf(finiteValues(t.Columns[rateMetric.Name], nil))
	for k := range registry {
		m := &registry[k]
		column := t.Columns[m.Name]
		if m.rule == nil || column == nil {
			continue
		}
		finite := finiteValues(column, nil)
		if len(finite) < leastEpisodes {
			continue
		}
		whole := m.rule.normalOf(finite, period)
		normals := map[string]*normal{}
		for task, rows := range tasks {
			if values := finiteValues(column, rows); len(tasks) > 1 && len(values) >= taskEpisodes {
				n := m.rule.normalOf(values, period)
				n.isTask = true
				normals[task] = n
			}
		}
		for row, v := range column {
			n := normals[t.Tasks[row]]
			if n == nil {
				n = whole
			}
			if n.exceeds(v, m) {
				yield(row, m, n)
			}
		}
	}
}

// exceeds reports whether a value is a finding, and sets n.isUpper.
func (n *normal) exceeds(v float64, m *metric) bool {
	d := v - n.median
	n.isUpper = d > 0
	return m.Worse >= 0 && d > n.above || m.Worse <= 0 && -d > n.below
}

// normalOf returns the usual range of the values of a group. It reorders them.
func (r *rule) normalOf(values []float64, period float64) *normal {
	slices.Sort(values)
	n := &normal{median: sortedQuantile(values, 0.5), count: len(values)}
	least := max(r.floor, r.share*math.Abs(n.median))
	if r.rows > 0 && period-period == 0 {
		least = max(least, r.rows*period)
	}
	n.below, n.above = r.usualDeviations(values, least)
	return n
}

// tailShare is the largest share of a group that is unusual. A deviation that more episodes share
// belongs to the distribution.
const tailShare = 0.12

// usualDeviations returns the largest usual deviations of ascending values from their median, to
// both sides: spread times 1.4826 times the median absolute deviation, and at least least. If more
// than tailShare of the values exceed a limit, the distribution has a long tail: then the limit is
// at least spread times the distance of the 20th or 80th percentile, divided by 0.8416.
func (r *rule) usualDeviations(sorted []float64, least float64) (below, above float64) {
	median := sortedQuantile(sorted, 0.5)
	deviation := make([]float64, len(sorted))
	for i, v := range sorted {
		deviation[i] = math.Abs(v - median)
	}
	// The median absolute deviation of few values is uncertain.
	spread := r.spread * (1 + 2/math.Sqrt(float64(len(sorted))))
	limit := max(spread*1.4826*medianOf(deviation), least)
	below, above = limit, limit
	if median-sortedQuantile(sorted, tailShare) > limit {
		below = max(limit, spread*(median-sortedQuantile(sorted, 0.2))/0.8416)
	}
	if sortedQuantile(sorted, 1-tailShare)-median > limit {
		above = max(limit, spread*(sortedQuantile(sorted, 0.8)-median)/0.8416)
	}
	return below, above
}

// finiteValues returns the values of some rows that are not NaN; nil rows are all.
func finiteValues(column []float64, rows []int) []float64 {
	var out []float64
	if rows == nil {
		for _, v := range column {
			if v-v == 0 {
				out = append(out, v)
			}
		}
		return out
	}
	for _, i := range rows {
		if v := column[i]; v-v == 0 {
			out = append(out, v)
		}
	}
	return out
}
