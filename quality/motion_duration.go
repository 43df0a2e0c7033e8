package quality

// durationMetric is the time from the first to the last timestamp of any stream that is not
// latched. Known failure: a stream that begins late or ends late makes the episode longer.
var durationMetric = metric{
	Metric: Metric{
		Name: "duration", Group: GroupMotion, Unit: "s",
		Summary: "The time from the first to the last timestamp.",
		Source:  "robocache",
	},
	measure: func(x *recording) float64 { return x.duration },
	rule:    &rule{code: "duration", spread: 2.6, floor: 0.25, share: 0.15, hint: hintLook},
}
