package quality

// setMetrics are the metrics that compare an episode with the others.
var setMetrics []metric

// addSetColumns computes the columns of setMetrics from the other columns and the sketches.
func addSetColumns(*Table) {}
