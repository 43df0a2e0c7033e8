package quality

import "slices"

// Groups of metrics.
const (
	GroupMotion      = "motion"
	GroupGripper     = "gripper"
	GroupConsistency = "consistency"
	GroupClocks      = "clocks"
	GroupImages      = "images"
	GroupOutcome     = "outcome"
	GroupSet         = "set"
)

// Metric describes one column of the table.
type Metric struct {
	Name     string `json:"name"`            // column name, e.g. "idle"; in expressions q.idle
	Group    string `json:"group"`           // motion, gripper, consistency, clocks, images, outcome, set
	Unit     string `json:"unit,omitempty"`  // "s", "Hz", "share", "count" …; "" is none
	Summary  string `json:"summary"`         // one sentence
	Worse    int    `json:"worse,omitempty"` // +1: large values are suspicious; -1: small; 0: both
	Source   string `json:"source,omitempty"`
	Inferred bool   `json:"inferred,omitempty"` // the finding is inferred, not measured
}

// metric is a Metric with its definition.
type metric struct {
	Metric
	// measure computes the value from the numbers of an episode. It is nil for metrics of frames
	// and of the set.
	measure func(x *recording) float64
	// isTimed reports that measuring also finds the part of the episode (recording.span).
	isTimed bool
	// rule states when a value is a finding; nil: never.
	rule *rule
}

// registry lists all metrics in the order of the columns.
var registry = slices.Concat(
	motionMetrics, gripperMetrics, consistencyMetrics, clockMetrics, imageMetrics,
	outcomeMetrics, setMetrics, []metric{scoreMetric},
)

// timedMetrics returns the names of the metrics that find a part of the episode, in the order of
// Table.Spans.
func timedMetrics() (names []string) {
	for i := range registry {
		if registry[i].isTimed {
			names = append(names, registry[i].Name)
		}
	}
	return names
}

// Metrics returns all metrics in the order of the columns.
func Metrics() []Metric {
	out := make([]Metric, len(registry))
	for i := range registry {
		out[i] = registry[i].Metric
	}
	return out
}

// MetricNamed returns the metric with a name, or nil if there is none.
func MetricNamed(name string) *Metric {
	for i := range registry {
		if registry[i].Name == name {
			m := registry[i].Metric
			return &m
		}
	}
	return nil
}
