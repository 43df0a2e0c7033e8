package mapping

import (
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestRoles: streams that command a robot are its action, and streams that report its joints are
// its state.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		name          string
		keys          []string
		action, state []string
	}{
		{
			"ROS",
			[]string{
				"imu.orientation",
				"joint_states.velocity",
				"joint_states.position",
				"arm.joint_command.position",
				"arm.joint_command.effort",
			},
			[]string{"arm.joint_command.position"},
			[]string{"joint_states.position"},
		},
		{
			"a twist",
			[]string{
				"cmd_vel.linear",
				"cmd_vel.angular",
				"odom.pose.position",
				"odom.pose.covariance",
			},
			[]string{"cmd_vel.linear", "cmd_vel.angular"},
			[]string{"odom.pose.position"},
		},
		{
			"ALOHA",
			[]string{"observation.qpos", "observation.qvel", "action"},
			nil,
			[]string{"observation.qpos"},
		},
		{"joints alone", []string{"joint_states.position"}, nil, []string{"joint_states.position"}},
		{"LeRobot", []string{"observation.state", "action"}, nil, nil},
		{"parts of an action", []string{"observation.state", "action.arm"}, nil, nil},
		{"nothing", []string{"imu.linear_acceleration", "disjoint"}, nil, nil},
	} {
		info := &robocache.Info{Clock: "camera"}
		for _, k := range c.keys {
			info.Features = append(
				info.Features,
				robocache.Feature{
					Key:   k,
					Kind:  robocache.KindNumeric,
					DType: robocache.Float64,
					Shape: []int{3},
					Clock: "c",
				},
			)
		}
		action, state := Roles(info)
		if !slices.Equal(action, c.action) || !slices.Equal(state, c.state) {
			t.Errorf("%s: action %v, state %v", c.name, action, state)
		}
		for _, f := range RoleFindings(info, "lerobot", nil) {
			if f.Severity != robocache.SeverityWarning || !strings.Contains(f.Hint, "Map: ") {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		if m, _ := Preset(info, 100); c.name == "joints alone" &&
			(m.Streams["action"].Offset != -100 ||
				m.Streams["observation.state"].From[0] != "joint_states.position") {
			t.Errorf("%+v", m)
		}
	}
}

// TestCameraKeys: the key of a camera keeps the words of its topic that name it.
func TestCameraKeys(t *testing.T) {
	taken := map[string]robocache.StreamMapping{}
	for key, want := range map[string]string{
		"camera.color.image_raw.compressed": "observation.images.camera",
		"/left/image_raw":                   "observation.images.left",
		"image":                             "observation.images.camera",
	} {
		if got := cameraKey(key, taken); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
