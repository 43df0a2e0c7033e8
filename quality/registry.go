package quality

// motionMetrics are the metrics of the movement of the robot.
var motionMetrics = []metric{
	durationMetric,
	pathLengthMetric,
	pathEfficiencyMetric,
	speedMedianMetric,
	speedHighMetric,
	jerkRMSMetric,
	motionNoiseMetric,
	ldjMetric,
	sparcMetric,
	highFrequencyMetric,
	idleMetric,
	idleHeadMetric,
	idleTailMetric,
	idleMiddleMetric,
	hesitationsMetric,
	reversalsMetric,
}

// gripperMetrics are the metrics of grippers.
var gripperMetrics = []metric{
	gripperEventsMetric,
	gripperCommandsMetric,
	gripperChatterMetric,
	gripperTravelMetric,
	gripperClosedMetric,
	gripperNeverClosesMetric,
	gripperEmptyMetric,
}

// consistencyMetrics are the metrics of states and actions together.
var consistencyMetrics = []metric{
	actionLagMetric,
	actionLagCorrelationMetric,
	trackingErrorMetric,
	saturationMetric,
	deadChannelsMetric,
	frozenStateMetric,
	discontinuitiesMetric,
	largestJumpMetric,
	clippedActionsMetric,
	actionLevelsMetric,
	notFiniteMetric,
}

// clockMetrics are the metrics of timestamps.
var clockMetrics = []metric{
	rateMetric,
	jitterMetric,
	gapsMetric,
	longestGapMetric,
	duplicatedTimesMetric,
	backwardTimesMetric,
	lateStartMetric,
	earlyEndMetric,
	clockSkewMetric,
	clockDriftMetric,
	cameraLagMetric,
	cameraLagCorrelationMetric,
	cameraDriftMetric,
	cameraSkewMetric,
}
