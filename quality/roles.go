package quality

import (
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
)

// part is some channels of a stream.
type part struct {
	feature  *robocache.Feature
	channels []int
}

// streamRoles are the channels of a dataset from which metrics are computed. A role that the
// dataset lacks has no parts.
type streamRoles struct {
	state, action                []part // without grippers
	gripperState, gripperCommand []part
	force                        []part
	cameras                      []*robocache.Feature
	success, reward              *robocache.Feature // nil: none
	// isRelative reports that the action is a change of the state.
	isRelative bool
}

var (
	forceWords = []string{
		"force", "forces", "effort", "efforts", "torque", "torques", "wrench", "tactile",
	}
	stateKeys = []string{mapping.StateKey, "state", "observation.proprio"}
)

// rolesOf finds the roles of streams by the conventions of package mapping. No channel is a gripper
// or a force unless a name or a convention says so.
func rolesOf(info *robocache.Info) *streamRoles {
	r := &streamRoles{success: SuccessOf(info), reward: RewardOf(info)}
	actions, states := roleKeys(info)
	for i := range info.Features {
		f := &info.Features[i]
		switch {
		case f.Default || f.Latched:
		case isColourCamera(f):
			r.cameras = append(r.cameras, f)
		case f.Kind != robocache.KindNumeric || f.Ragged() || f.DType.Size() == 0:
		case slices.Contains(actions, f.Key):
			r.addAction(f)
		case slices.Contains(states, f.Key):
			moving, grippers := splitGrippers(f)
			r.state = appendPart(r.state, f, moving)
			r.gripperState = appendPart(r.gripperState, f, grippers)
		case isForce(f.Key):
			r.force = appendPart(r.force, f, allChannels(f))
		case f.DType.Float() && strings.HasPrefix(f.Key, "observation."):
			if grippers := f.GripperChannels(); len(grippers) == f.Elements() {
				r.gripperState = appendPart(r.gripperState, f, grippers)
			}
		}
	}
	r.matchUnnamedGripper()
	return r
}

// roleKeys returns the streams of the action and of the state.
func roleKeys(info *robocache.Info) (actions, states []string) {
	actions, states = mapping.Roles(info)
	for _, key := range []string{mapping.ActionKey, "actions"} {
		if info.Feature(key) != nil {
			actions = []string{key}
			break
		}
	}
	if actions == nil {
		for _, key := range info.Keys() {
			if strings.HasPrefix(key, mapping.ActionKey+".") &&
				!strings.HasSuffix(key, robocache.ValidSuffix) {
				actions = append(actions, key)
			}
		}
	}
	for _, key := range stateKeys {
		if info.Feature(key) != nil {
			states = []string{key}
			break
		}
	}
	return actions, states
}

// addAction adds a stream of the action.
func (r *streamRoles) addAction(f *robocache.Feature) {
	moving, grippers := splitGrippers(f)
	r.action = appendPart(r.action, f, moving)
	r.gripperCommand = appendPart(r.gripperCommand, f, grippers)
	if relative, _ := f.RelativeChannels(); 2*len(relative) > len(moving) {
		r.isRelative = true
	}
}

// matchUnnamedGripper makes the last of seven channels of a state without names the gripper, if the
// action is one stream of seven channels whose last is the gripper.
func (r *streamRoles) matchUnnamedGripper() {
	if len(r.state) != 1 || len(r.action) != 1 || r.gripperState != nil {
		return
	}
	f := r.state[0].feature
	lastIsGripper := len(r.gripperCommand) == 1 &&
		slices.Equal(r.gripperCommand[0].channels, []int{6})
	if f.ChannelNames() == nil && f.Elements() == 7 && lastIsGripper &&
		r.action[0].feature.ChannelNames() == nil {
		r.state[0].channels = r.state[0].channels[:6]
		r.gripperState = []part{{f, []int{6}}}
	}
}

// splitGrippers returns the channels of a stream that move the robot, and its grippers.
func splitGrippers(f *robocache.Feature) (moving, grippers []int) {
	grippers = f.GripperChannels()
	for c := range f.Elements() {
		if !slices.Contains(grippers, c) {
			moving = append(moving, c)
		}
	}
	return moving, grippers
}

func appendPart(parts []part, f *robocache.Feature, channels []int) []part {
	if len(channels) == 0 {
		return parts
	}
	return append(parts, part{f, channels})
}

func allChannels(f *robocache.Feature) (out []int) {
	for c := range f.Elements() {
		out = append(out, c)
	}
	return out
}

// isForce reports whether a key names a force.
func isForce(key string) bool {
	words := strings.FieldsFunc(strings.ToLower(key), func(r rune) bool {
		return strings.ContainsRune("._/-", r)
	})
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(forceWords, w) })
}

// isColourCamera reports whether a stream holds images in colour or grey.
func isColourCamera(f *robocache.Feature) bool {
	return f.Kind == robocache.KindVideo && f.Depth == nil ||
		f.Kind == robocache.KindImage && f.DType == robocache.Uint8
}

// numericParts returns all parts of the roles.
func (r *streamRoles) numericParts() []part {
	return slices.Concat(r.state, r.action, r.gripperState, r.gripperCommand, r.force)
}

// features returns the streams of numbers that have a role, each once.
func (r *streamRoles) features() (out []*robocache.Feature) {
	for _, p := range r.numericParts() {
		if !slices.Contains(out, p.feature) {
			out = append(out, p.feature)
		}
	}
	return out
}
