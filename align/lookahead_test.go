package align

import (
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestLookAhead checks which samples past a tick each alignment reads, and how far.
func TestLookAhead(t *testing.T) {
	rows := newFake() // one clock of 30 Hz
	rows.info.FPS = robocache.Rate{Num: 30, Den: 1}
	rows.info.Features = append(rows.info.Features, robocache.Feature{
		Key: "action", Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{2},
	})
	// a relative observation, a delta action, an action under another name and a past action
	deltas := newFake()
	deltas.info.FPS = robocache.Rate{Num: 30, Den: 1}
	deltas.info.Features = nil
	for _, key := range []string{
		"odometry",
		"delta_action",
		"joint_actions",
		"observation.last_action",
	} {
		deltas.info.Features = append(deltas.info.Features, robocache.Feature{
			Key: key, Kind: robocache.KindNumeric, DType: robocache.Float32, Shape: []int{2},
		})
	}
	deltas.info.Features[0].Relative = []int{0, 1}
	recording := newFake() // joints 100 Hz, force 333 Hz, camera 30 Hz, each on its own clock
	recording.info.Clock = "camera"
	for _, key := range []string{"joints", "force"} {
		recording.info.Feature(key).Clock = key
	}
	for _, c := range []struct {
		ds     *fake
		config string
		keys   []string
		want   string // "" = no finding
	}{
		{
			rows,
			`{"hz": 50}`,
			nil,
			"observations at 50 Hz use samples from after the tick, at most 33.3 ms of joints, " +
				"force, 16.7 ms of camera",
		},
		{rows, `{"hz": 50}`, []string{"camera"}, "at most 16.7 ms of camera"},
		{rows, `{"hz": 15}`, nil, ""}, // each tick is a row
		{rows, `{"hz": 30}`, nil, ""},
		{rows, `{"hz": 15, "offset": {"joints": 0.01}}`, nil, "at most 33.3 ms of joints"},
		{rows, `{"hz": 15, "modes": {"joints": "mean"}}`, nil, "at most 33.3 ms of joints"},
		{rows, `{"hz": 50}`, []string{"action"}, ""}, // a label
		{rows, `{"hz": 50}`, []string{}, ""},
		{
			rows,
			`{"hz": 50, "modes": {"joints": "previous", "force": "previous", "camera": "previous"}}`,
			nil,
			"",
		},
		{deltas, `{"hz": 20}`, nil, "at most 33.3 ms of observation.last_action"},
		{deltas, `{"hz": 20}`, []string{"odometry", "delta_action", "joint_actions"}, ""},
		{deltas, `{"hz": 20, "modes": {"odometry": "linear"}}`, []string{"odometry"}, ""},
		{deltas, `{"hz": 20, "modes": {"odometry": "sum"}}`, []string{"odometry"}, ""},
		{deltas, `{"hz": 20, "relative": {"odometry": true}}`, []string{"odometry"}, ""},
		{
			deltas,
			`{"hz": 20, "relative": {"odometry": false}}`,
			[]string{"odometry"},
			"at most 33.3 ms of odometry",
		},
		{
			recording,
			`{"hz": 50}`,
			nil,
			"at most 16.7 ms of camera, 10.0 ms of joints, 3.0 ms of force",
		},
		{
			recording,
			`{}`,
			[]string{"force"},
			"observations on another clock use samples from after the tick, at most 3.0 ms of " +
				"force",
		},
	} {
		cfg := mustConfig(t, c.config)
		f, err := cfg.LookAhead(t.Context(), c.ds, c.keys)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case f == nil && c.want == "":
		case f == nil || c.want == "":
			t.Errorf("%s %v: %+v, want %q", c.config, c.keys, f, c.want)
		case f.Code != "look-ahead" || f.Severity != robocache.SeverityInfo || f.Hint == "" ||
			!strings.HasSuffix(f.Message, c.want):
			t.Errorf("%s %v: %+v, want %q", c.config, c.keys, f, c.want)
		}
	}
}
