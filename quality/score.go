package quality

import "math"

// scoreMetric is 1 for an episode without a finding, and half of it for each finding more. An
// episode that could not be measured has 0. Use it as a weight.
var scoreMetric = metric{
	Metric: Metric{
		Name: "score", Group: GroupSet, Worse: -1,
		Summary:  "1 without findings, and half of it for each finding more.",
		Source:   "robocache",
		Inferred: true,
	},
}

// addScores computes the column of score from the findings.
func (t *Table) addScores() {
	counts := make([]int, t.Len())
	t.eachFinding(func(row int, _ *metric, _ *normal) { counts[row]++ })
	column := make([]float64, t.Len())
	for i := range column {
		if t.Errors[i] == "" {
			column[i] = math.Pow(0.5, float64(counts[i]))
		}
	}
	t.Columns[scoreMetric.Name] = column
}
