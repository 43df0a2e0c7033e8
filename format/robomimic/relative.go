package robomimic

import (
	"encoding/json"

	"github.com/goatnote-inc/robocache"
)

// poseDeltasOf returns the number of action channels of a robosuite controller that are changes of
// the end effector's pose. The gripper follows them. It returns 0 for a controller with absolute
// targets, and for an unknown controller.
func poseDeltasOf(configs json.RawMessage) int {
	var controller struct {
		Type  string `json:"type"`
		Delta bool   `json:"control_delta"`
	}
	if json.Unmarshal(configs, &controller) != nil || !controller.Delta {
		return 0
	}
	switch controller.Type {
	case "OSC_POSE":
		return 6
	case "OSC_POSITION":
		return 3
	}
	return 0
}

// markRelative marks the actions as relative, without the gripper, if the controllers of all files
// are relative.
func (d *Dataset) markRelative() {
	for _, n := range d.poseDeltas {
		if n == 0 || n != d.poseDeltas[0] {
			return
		}
	}
	for i := range d.Streams {
		f := &d.Streams[i].Feature
		if f.Key != "action" || f.Kind != robocache.KindNumeric || f.Ragged() || !f.DType.Float() {
			continue
		}
		n := d.poseDeltas[0]
		if f.Elements() != n && f.Elements() != n+1 {
			return // several arms, or a mobile base
		}
		f.Relative, f.RelativeReason = make([]int, n), "as control_delta of env_args states"
		for c := range n {
			f.Relative[c] = c
		}
	}
}
