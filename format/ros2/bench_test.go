package ros2

import (
	"bytes"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// columnsOf reads timestamps and all numeric fields of messages.
func columnsOf(
	tb testing.TB,
	top *Topic,
	msgs [][]byte,
	timestamps []int64,
	fields []int,
	dst [][]byte,
	valid [][]uint8,
) {
	for k, m := range msgs {
		ns, _, err := top.Timestamp(m)
		if err != nil {
			tb.Fatal(err)
		}
		timestamps[k] = ns
	}
	if _, err := top.Columns(msgs, nil, fields, dst, valid); err != nil {
		tb.Fatal(err)
	}
}

func room(top *Topic, n int) (fields []int, dst [][]byte, valid [][]uint8) {
	for k, f := range top.Fields() {
		if b := f.Feature.RowBytes(); b > 0 {
			fields, dst, valid = append(fields, k), append(dst, make([]byte, n*b)),
				append(valid, make([]uint8, n))
		}
	}
	return fields, dst, valid
}

func benchTopic(b *testing.B, name string, msg []byte) {
	s, ok := KnownSchema(name)
	if !ok {
		b.Fatal(name)
	}
	top, err := NewTopic("/t", s, [][]byte{msg})
	if err != nil {
		b.Fatal(err)
	}
	const n = 1000
	msgs := make([][]byte, n)
	for k := range msgs {
		msgs[k] = bytes.Clone(msg)
	}
	fields, dst, valid := room(top, n)
	timestamps := make([]int64, n)
	b.SetBytes(int64(n * len(msg)))
	b.ReportAllocs()
	for b.Loop() {
		columnsOf(b, top, msgs, timestamps, fields, dst, valid)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
}

func benchJoint() []byte {
	names := make([]string, 26)
	v := make([]float64, 26)
	for k := range names {
		names[k], v[k] = "joint_"+string(rune('a'+k)), float64(k)
	}
	return EncodeJointState(nil, Header{1e18, "base_link"}, names, v, v, v)
}

func BenchmarkJointState(b *testing.B) { benchTopic(b, "sensor_msgs/JointState", benchJoint()) }
func BenchmarkImu(b *testing.B) {
	benchTopic(
		b,
		"sensor_msgs/Imu",
		EncodeImu(nil, Header{1e18, "imu_link"}, &Imu{Orientation: [4]float64{1, 0, 0, 0}}),
	)
}

func BenchmarkGeneric(b *testing.B) {
	// CameraInfo has no fast decoder and 30 leaves.
	s, _ := KnownSchema("sensor_msgs/CameraInfo")
	top, err := NewTopic("/t", s, nil)
	if err != nil {
		b.Fatal(err)
	}
	msg := make([]byte, 400)
	msg[1] = 1
	msgs := make([][]byte, 1000)
	for k := range msgs {
		msgs[k] = msg
	}
	fields, dst, valid := room(top, len(msgs))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := top.Columns(msgs, nil, fields, dst, valid); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(msgs)), "ns/message")
}

func BenchmarkCloud(b *testing.B) {
	data := make([]byte, 16*20000)
	msg, err := EncodePointCloud2(
		nil,
		Header{},
		[]PointField{
			{"x", 0, robocache.Float32, 1},
			{"y", 4, robocache.Float32, 1},
			{"z", 8, robocache.Float32, 1},
			{"intensity", 12, robocache.Float32, 1},
		},
		0,
		data,
	)
	if err != nil {
		b.Fatal(err)
	}
	s, _ := KnownSchema("sensor_msgs/PointCloud2")
	top, err := NewTopic("/p", s, [][]byte{msg})
	if err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if out, _, err = top.Ragged(msg, 0, 0, out[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

// TestColumnsAllocate checks that columns of fixed fields make no allocation that grows with the
// messages (ros2.R8).
func TestColumnsAllocate(t *testing.T) {
	for name, msg := range map[string][]byte{
		"sensor_msgs/JointState": benchJoint(),
		"sensor_msgs/Imu":        EncodeImu(nil, Header{1e18, "imu_link"}, &Imu{}),
		"tf2_msgs/TFMessage":     EncodeTFMessage(nil, []Transform{{Child: "a"}}),
	} {
		s, _ := KnownSchema(name)
		top, err := NewTopic("/t", s, [][]byte{msg})
		if err != nil {
			t.Fatal(err)
		}
		msgs := make([][]byte, 500)
		for k := range msgs {
			msgs[k] = msg
		}
		fields, dst, valid := room(top, len(msgs))
		if n := testing.AllocsPerRun(
			5,
			func() { _, _ = top.Columns(msgs, nil, fields, dst, valid) },
		); n > 8 {
			t.Errorf("%s: %v allocations for %d messages", name, n, len(msgs))
		}
	}
}
