package quality

// setMetrics are the metrics that compare an episode with the others.
var setMetrics = []metric{
	duplicateMetric, duplicateOfMetric, mirroredMetric, outlierMetric, pathOutlierMetric,
	rarityMetric, disagreementMetric, taskShareMetric,
}

// addSetColumns computes the columns that compare an episode with the others: those of setMetrics,
// and the metrics of frames that are relative to their camera. It depends on the table only.
func addSetColumns(t *Table) {
	addCameraColumns(t)
	setBalance(t)
	setOutliers(t)
	if p, ok := newPointSet(t); ok {
		setDuplicates(t, p)
		setPathOutliers(t, p)
		setCoverage(t, p)
	}
}
