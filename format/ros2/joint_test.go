package ros2

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func readF64(p []byte) (out []float64) {
	for ; len(p) >= 8; p = p[8:] {
		out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(p)))
	}
	return out
}

// TestJointGroups checks that an arm and its gripper, which share /joint_states with different
// joints, are two streams on separate clocks.
func TestJointGroups(t *testing.T) {
	s, _ := KnownSchema("sensor_msgs/JointState")
	arm := func(k int64) []byte {
		return EncodeJointState(
			nil,
			Header{Timestamp: k},
			[]string{"a", "b"},
			[]float64{float64(k), 1},
			nil,
			nil,
		)
	}
	grip := func(k int64) []byte {
		return EncodeJointState(
			nil,
			Header{Timestamp: k},
			[]string{"g"},
			[]float64{float64(-k)},
			nil,
			[]float64{7},
		)
	}
	msgs := [][]byte{arm(1), grip(2), arm(3), arm(4), grip(5)}
	top, err := NewTopic("/joint_states", s, msgs[:1])
	if err != nil {
		t.Fatal(err)
	}
	rows := map[int][]int{}
	for k, m := range msgs {
		if err := top.Scan(m, func(clock, _ int, timestamp int64, stamped bool) {
			rows[clock] = append(rows[clock], k)
			if !stamped || timestamp != int64(k+1) {
				t.Errorf("timestamp %d", timestamp)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for k, f := range top.Fields() {
		keys = append(keys, f.Feature.Key+" on "+f.Feature.Clock)
		if f.Feature.Masked {
			t.Errorf("%s is masked", f.Feature.Key)
		}
		for _, i := range rows[f.Clock] {
			dst := make([]byte, f.Feature.RowBytes())
			if ok, err := top.Numeric(msgs[i], k, 0, dst); !ok || err != nil {
				t.Errorf("%s of message %d: %v", f.Feature.Key, i, err)
			}
		}
		// A message of the other group holds no value.
		other := 1
		if f.Clock == 1 {
			other = 0
		}
		dst := make([]byte, f.Feature.RowBytes())
		if ok, err := top.Numeric(msgs[other], k, 0, dst); ok || err != nil {
			t.Errorf("%s of another group's message: %v %v", f.Feature.Key, ok, err)
		}
	}
	if got := strings.Join(keys, ", "); got !=
		"joint_states.position on joint_states, joint_states.2.position on "+
			"joint_states.2, joint_states.2.effort on joint_states.2" {
		t.Error(got)
	}
	if len(rows[0]) != 3 || len(rows[1]) != 2 {
		t.Error(rows)
	}
}

// TestJointNames checks that messages without names have columns by position, and that duplicate
// names count once.
func TestJointNames(t *testing.T) {
	s, _ := KnownSchema("sensor_msgs/JointState")
	bare := EncodeJointState(nil, Header{}, nil, []float64{1, 2, 3}, nil, nil)
	top, err := NewTopic("/j", s, [][]byte{bare})
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 24)
	if ok, err := top.Numeric(bare, 0, 0, dst); !ok || err != nil || readF64(dst)[2] != 3 {
		t.Errorf("%v, %v, %v", ok, err, readF64(dst))
	}
	short := EncodeJointState(nil, Header{}, nil, []float64{1, 2}, nil, nil)
	if ok, err := top.Numeric(short, 0, 0, dst); ok || err != nil {
		t.Error("a message with fewer values is valid")
	}
	twice := EncodeJointState(nil, Header{}, []string{"a", "a", "b"}, []float64{1, 2, 3}, nil, nil)
	if top, err = NewTopic("/j", s, [][]byte{twice}); err != nil {
		t.Fatal(err)
	}
	dst = dst[:16]
	if ok, err := top.Numeric(twice, 0, 0, dst); !ok || err != nil || readF64(dst)[0] != 1 ||
		readF64(dst)[1] != 3 {
		t.Errorf("%v, %v, %v", ok, err, readF64(dst))
	}
}
