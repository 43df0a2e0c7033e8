package quality

import (
	"math"
	"slices"
)

// outlierMetric is the mean of the three largest robust z of an episode's metrics against its task,
// each at most 20. Unit: deviations. Source: Iglewicz and Hoaglin 1993 (median and MAD). Known
// failure: in a small task the deviation is uncertain.
var outlierMetric = metric{
	Metric: Metric{
		Name: "outlier", Group: GroupSet, Unit: "deviations", Worse: 1,
		Summary: "How far the three most unusual metrics are from those of the task.",
		Source:  "Iglewicz and Hoaglin 1993",
	},
	rule: &rule{code: "outlier", spread: 6, floor: 3, hint: hintLook},
}

// pathOutlierMetric is the RMS difference of the standardized trajectory to the median trajectory
// of its task. Unit: deviations. Source: trajectory medoids, as in TED (arXiv 2604.23000). Known
// failure: a task with several solutions has no middle.
var pathOutlierMetric = metric{
	Metric: Metric{
		Name: "path_outlier", Group: GroupSet, Unit: "deviations", Worse: 1,
		Summary: "How far the trajectory is from the median trajectory of the task.",
		Source:  "distance to the median trajectory",
	},
	rule: &rule{code: "path-outlier", spread: 6, floor: 0.3, hint: hintLook},
}

const (
	largestZ     = 20.0
	medianSample = 501 // episodes of a task from which its median trajectory is taken
)

// rowsByTask returns the rows of each task, in ascending order.
func rowsByTask(t *Table) map[string][]int {
	rows := map[string][]int{}
	for i, task := range t.Tasks {
		rows[task] = append(rows[task], i)
	}
	return rows
}

// setOutliers fills the column of outliers from the columns that measure the episode itself.
func setOutliers(t *Table) {
	top := make([][3]float64, t.Len())
	known := make([]bool, t.Len())
	for _, m := range Metrics() {
		if m.Group == GroupSet || m.Group == GroupOutcome {
			continue
		}
		column := t.Columns[m.Name]
		for _, rows := range rowsByTask(t) {
			values := make([]float64, len(rows))
			for k, i := range rows {
				values[k] = column[i]
			}
			median, spread := medianAndSpread(values)
			for k, i := range rows {
				if z := math.Abs(values[k]-median) / spread; spread > 0 && z-z == 0 {
					insertLargest(&top[i], min(z, largestZ))
					known[i] = true
				}
			}
		}
	}
	for i, z := range top {
		t.Columns["outlier"][i] = nan
		if known[i] {
			t.Columns["outlier"][i] = (z[0] + z[1] + z[2]) / 3
		}
	}
}

// insertLargest keeps the three largest values in descending order.
func insertLargest(top *[3]float64, v float64) {
	for k := range top {
		if v > top[k] {
			v, top[k] = top[k], v
		}
	}
}

// setPathOutliers fills the column of distances to the median trajectory of the task.
func setPathOutliers(t *Table, p *pointSet) {
	v := make([]float32, p.width())
	for _, rows := range rowsByTask(t) {
		rows = slices.DeleteFunc(rows, func(i int) bool { return !p.hasTrajectory[i] })
		if len(rows) == 0 {
			continue
		}
		sample := min(len(rows), medianSample)
		columns := make([][]float64, p.width())
		for k := range sample {
			p.standardize(rows[k*len(rows)/sample], false, v)
			for d, x := range v {
				columns[d] = append(columns[d], float64(x))
			}
		}
		center := make([]float32, p.width())
		for d := range columns {
			center[d] = float32(medianOf(columns[d]))
		}
		for _, i := range rows {
			p.standardize(i, false, v)
			t.Columns["path_outlier"][i] = rmsDistance(v, center)
		}
	}
}
