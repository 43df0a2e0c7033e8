package ros2

import (
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// TestJointWithoutName checks that a group without names and a joint named "" are distinct.
func TestJointWithoutName(t *testing.T) {
	s, _ := KnownSchema("sensor_msgs/JointState")
	h := Header{5, "f"}
	bare := EncodeJointState(nil, h, nil, []float64{1, 2, 3}, nil, nil)
	named := EncodeJointState(nil, h, []string{"", "a"}, []float64{7, 8}, nil, nil)
	for _, msgs := range [][][]byte{{bare, named}, {named, bare}} {
		top, err := NewTopic("/t", s, msgs[:1])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			everything(t, top, m)
		}
		if _, clocks := top.decoder.streamLayout("t"); len(clocks) != 2 {
			t.Errorf("clocks %v: the two sets of joints are groups of their own", clocks)
		}
	}
}

// TestArraysOfNothing checks that arrays of elements without bytes are not walked.
func TestArraysOfNothing(t *testing.T) {
	s, err := ParseSchema(
		"ros2msg",
		"own/A",
		"own/B[2000000000] a\nint32 "+
			"x\n================================================================================\nMSG: own/B\nown/C[2000000000] c\n"+
			"================================================================================\nMSG: own/C\nuint8[0] n\n",
	)
	if err != nil {
		return // an error is also acceptable
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		msg := []byte{0, 1, 0, 0, 9, 0, 0, 0}
		top, err := NewTopic("/t", s, [][]byte{msg})
		hostile.Typed(t, err)
		if err == nil {
			everything(t, top, msg)
		}
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatal("an array of nothing takes forever")
	}
}
