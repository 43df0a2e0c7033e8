package mapping

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// The keys of a policy's input and output in LeRobot.
const (
	ActionKey = "action"
	StateKey  = "observation.state"
)

var (
	actionWords = []string{
		"action",
		"command",
		"cmd",
		"target",
		"desired",
		"setpoint",
		"goal",
		"ctrl",
		"control",
	}
	stateWords = []string{
		"qpos",
		"joint_states",
		"joint_state",
		"joint_position",
		"joint_pos",
		"state",
		"proprio",
		"joints",
		"joint",
		"eef",
		"tcp",
		"pose",
		"odom",
	}
	// These words exclude a state. A command may be a velocity.
	rateWords = []string{"velocity", "vel", "qvel", "effort", "torque", "current"}
	skipWords = []string{
		"covariance",
		"sec",
		"nanosec",
		"seq",
		"valid",
		"reward",
		"done",
		"camera_info",
		"diagnostic",
	}
	imageWords = []string{
		"image_raw",
		"image_rect",
		"image_color",
		"image",
		"images",
		"compressed",
		"color",
		"rgb",
		"observation",
		"obs",
		"data",
	}
)

// Roles returns the streams from which the action and the state of a dataset can be joined. A
// stream that commands the robot is an action, and a stream that reports its joints is a state. A
// list is empty if the dataset already has the role or no stream fits it.
func Roles(info *robocache.Info) (action, state []string) {
	if !HasAction(info) {
		action = candidateParts(info, actionWords, nil)
	}
	if info.Feature(StateKey) == nil {
		state = candidateParts(info, stateWords, slices.Concat(actionWords, rateWords))
	}
	return action, state
}

// HasAction reports whether a dataset has an action under LeRobot's name.
func HasAction(info *robocache.Info) bool {
	return slices.ContainsFunc(info.Features, func(f robocache.Feature) bool {
		return f.Key == ActionKey ||
			strings.HasPrefix(f.Key, ActionKey+".") &&
				!strings.HasSuffix(f.Key, robocache.ValidSuffix)
	})
}

// candidateParts returns the streams of the group whose name contains the first matching word of
// words and none of others. A group is the numeric streams with the same prefix ("joint_states." of
// "joint_states.position"), clock and type. If the group has positions, only they are returned.
func candidateParts(info *robocache.Info, words, others []string) []string {
	for _, word := range words {
		for i := range info.Features {
			first := &info.Features[i]
			if !isJoinable(first) || !hasWord(first.Key, word) ||
				slices.ContainsFunc(others, func(w string) bool { return hasWord(first.Key, w) }) {
				continue
			}
			at := strings.LastIndexByte(first.Key, '.')
			prefix, last := first.Key[:at+1], first.Key[at+1:]
			if at < 0 || hasWord(last, word) {
				return []string{first.Key} // the key of the stream itself has the word
			}
			var group []string
			for k := range info.Features {
				f := &info.Features[k]
				leaf, ok := strings.CutPrefix(f.Key, prefix)
				switch {
				case !ok || !isJoinable(f) || f.Clock != first.Clock || f.DType != first.DType:
				case slices.ContainsFunc(others, func(w string) bool { return hasWord(leaf, w) }):
				case leaf == "position" || leaf == "positions":
					return []string{f.Key}
				default:
					group = append(group, f.Key)
				}
			}
			return group
		}
	}
	return nil
}

// isJoinable reports whether a stream can be part of an action or a state.
func isJoinable(f *robocache.Feature) bool {
	return !f.Default && f.Kind == robocache.KindNumeric && !f.Ragged() && f.DType.Float() &&
		!f.Latched &&
		f.Elements() < 256 &&
		!slices.ContainsFunc(skipWords, func(w string) bool { return hasWord(f.Key, w) })
}

// hasWord reports whether a key contains a word between separators: "joint" is in "left.joint_pos",
// but not in "disjoint".
func hasWord(key, word string) bool {
	flat := "_" + strings.NewReplacer(".", "_", "/", "_", "-", "_").
		Replace(strings.ToLower(key)) +
		"_"
	return strings.Contains(flat, "_"+word+"_")
}

// Preset returns the mapping that gives a dataset the names that lerobot trains on: action,
// observation.state and observation.images.*. Streams that lerobot does not use are dropped; left
// lists them. If no stream commands the robot and the streams have their own clocks, the action is
// the state one row later. period is the time between rows in ns.
func Preset(info *robocache.Info, period int64) (m *robocache.Mapping, left []string) {
	m = &robocache.Mapping{Rest: "drop", Streams: map[string]robocache.StreamMapping{}}
	action, state := Roles(info)
	used := map[string]bool{}
	name := func(key string, from ...string) {
		m.Streams[key] = robocache.StreamMapping{From: from}
		for _, k := range from {
			used[k] = true
		}
	}
	if state != nil {
		name(StateKey, state...)
	}
	if action != nil {
		name(ActionKey, action...)
	}
	for i := range info.Features {
		f := &info.Features[i]
		camera := (f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage) &&
			f.Depth == nil &&
			!strings.HasPrefix(f.Key, "observation.")
		known := strings.HasPrefix(f.Key, "observation.") || strings.HasPrefix(f.Key, ActionKey) ||
			strings.HasPrefix(f.Key, "next.") ||
			strings.HasPrefix(f.Key, "annotation.")
		switch {
		case f.Default || used[f.Key]:
		case camera:
			name(cameraKey(f.Key, m.Streams), f.Key)
		case known && f.Kind != robocache.KindPointCloud && !f.Ragged(),
			f.Kind == robocache.KindText:
			name(f.Key, f.Key)
		default:
			left = append(left, f.Key)
		}
	}
	if from := m.Streams[StateKey].From; !HasAction(info) && action == nil && len(from) > 0 &&
		info.Clock != "" &&
		period > 0 {
		m.Streams[ActionKey] = robocache.StreamMapping{From: from, Offset: -period}
	}
	return m, left
}

// cameraKey returns "observation.images." followed by the words of a key that name the camera.
func cameraKey(key string, taken map[string]robocache.StreamMapping) string {
	var words []string
	for word := range strings.FieldsFuncSeq(
		key,
		func(r rune) bool { return r == '.' || r == '/' },
	) {
		if !slices.Contains(imageWords, strings.ToLower(word)) {
			words = append(words, word)
		}
	}
	base := "observation.images." + strings.Join(words, "_")
	if words == nil {
		base += "camera"
	}
	name := base
	for n := 2; taken[name].From != nil; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	return name
}

// RoleFindings returns a finding for each role that lerobot's policies need and the dataset lacks,
// with the mapping that adds it. It returns none unless all of a dataset in another format is
// written as LeRobot. keys are the chosen features.
func RoleFindings(info *robocache.Info, to string, keys []string) (out []robocache.Finding) {
	if to != "lerobot" || info.Format == to || keys != nil {
		return nil
	}
	action, state := Roles(info)
	report := func(code, key string, from []string) {
		hint := fmt.Sprintf(
			"Pass %s with the stream that is the %s.",
			robocache.Option("map", "streams", key, "from", []string{"STREAM"}),
			key,
		)
		switch {
		case from == nil && key == ActionKey && info.Clock != "" && (state != nil ||
			info.Feature(StateKey) != nil):
			hint += " " + robocache.Option("preset", "lerobot") + " takes the state one row later."
		case from != nil:
			hint = fmt.Sprintf(
				"Pass %s, or %s.",
				robocache.Option("map", "streams", key, "from", from),
				robocache.Option("preset", "lerobot"),
			)
		}
		out = append(
			out,
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     code,
				Message: "no stream is named " + key + ": lerobot's policies cannot be trained " +
					"on the result",
				Hint: hint,
			},
		)
	}
	if !HasAction(info) {
		report("no-action", ActionKey, action)
	}
	if info.Feature(StateKey) == nil {
		report("no-state", StateKey, state)
	}
	return out
}
