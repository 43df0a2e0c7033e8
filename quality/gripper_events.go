package quality

// gripperEventsMetric is the number of times that a gripper changes between open and closed, of all
// grippers together. The measured grippers count; the commanded ones if none is measured. Known
// failure: a gripper that is used in a small part of its range has no events.
var gripperEventsMetric = metric{
	Metric: Metric{
		Name: "gripper_events", Group: GroupGripper, Unit: "count",
		Summary: "The number of times that a gripper opens or closes.",
		Source:  "robocache; hysteresis at 35 and 65 % of the range",
	},
	measure: func(x *recording) float64 { return countEvents(x.grippers()) },
	rule:    &rule{code: "gripper-events", spread: 4.5, floor: 3.5, hint: hintLook},
}

// gripperCommandsMetric is the number of times that the action opens or closes a gripper.
var gripperCommandsMetric = metric{
	Metric: Metric{
		Name: "gripper_commands", Group: GroupGripper, Unit: "count",
		Summary: "The number of times that the action opens or closes a gripper.",
		Source:  "robocache; hysteresis at 35 and 65 % of the range",
	},
	measure: func(x *recording) float64 { return countEvents(x.gripperCommand) },
}
