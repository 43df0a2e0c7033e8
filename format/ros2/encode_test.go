package ros2

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestEncoderEqualsRosbags checks that rosbags reads encoded messages and writes the same bytes
// again (ros2.R9).
func TestEncoderEqualsRosbags(t *testing.T) {
	h := Header{1700000000_123456789, "base_link"}
	imu := &Imu{
		Orientation:        [4]float64{0, 0, 0, 1},
		AngularVelocity:    [3]float64{1, 2, 3},
		LinearAcceleration: [3]float64{4, 5, math.Inf(1)},
	}
	imu.OrientationCovariance[0] = -1
	img, err := EncodeImage(
		nil,
		h,
		&robocache.Raw{
			Pix:      []byte{1, 2, 3, 9, 9, 4, 5, 6, 9, 9},
			Height:   2,
			Width:    1,
			Channels: 3,
			DType:    robocache.Uint8,
			Stride:   5,
			BGR:      true,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := EncodePointCloud2(
		nil,
		h,
		[]PointField{{"x", 0, robocache.Float32, 1}, {"ring", 6, robocache.Uint16, 2}},
		12,
		make([]byte, 36),
	)
	if err != nil {
		t.Fatal(err)
	}
	multi, err := EncodeMultiArray(
		nil,
		robocache.Int64,
		[]int{2, 3},
		[]string{"rows", "columns"},
		bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 6),
	)
	if err != nil {
		t.Fatal(err)
	}
	none, err := EncodeMultiArray(nil, robocache.Float64, []int{0}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := [][2]string{}
	add := func(typ string, msg []byte) {
		cases = append(cases, [2]string{
			typ,
			hex.EncodeToString(msg),
		})
	}
	add(
		"sensor_msgs/msg/JointState",
		EncodeJointState(nil, h, []string{"a", "bcd"}, []float64{1, 2}, nil, []float64{3}),
	)
	add(
		"sensor_msgs/msg/JointState",
		EncodeJointState(nil, Header{Timestamp: -5}, nil, nil, nil, nil),
	)
	add("sensor_msgs/msg/Imu", EncodeImu(nil, h, imu))
	add(
		"geometry_msgs/msg/WrenchStamped",
		EncodeWrenchStamped(nil, h, [6]float64{1, 2, 3, 4, 5, 6}),
	)
	add("geometry_msgs/msg/TwistStamped", EncodeTwistStamped(nil, h, [6]float64{1, 2, 3, 4, 5, 6}))
	add("geometry_msgs/msg/PoseStamped", EncodePoseStamped(nil, h, [7]float64{1, 2, 3, 4, 5, 6, 7}))
	add("sensor_msgs/msg/Image", img)
	add(
		"sensor_msgs/msg/CompressedImage",
		EncodeCompressedImage(nil, h, "", []byte("\x89PNG\r\n\x1a\nxyz")),
	)
	add("sensor_msgs/msg/PointCloud2", cloud)
	add("std_msgs/msg/Int64MultiArray", multi)
	add("std_msgs/msg/Float64MultiArray", none)
	add("std_msgs/msg/String", EncodeString(nil, "é"))
	add(
		"tf2_msgs/msg/TFMessage",
		EncodeTFMessage(
			nil,
			[]Transform{
				{h, "hand", [3]float64{1, 2, 3}, [4]float64{0, 0, 0, 1}},
				{h, "eye", [3]float64{}, [4]float64{}},
			},
		),
	)
	in, _ := json.Marshal(cases)
	cmd := exec.Command(python(t), "-c", `
import json, sys
from rosbags.typesys import Stores, get_typestore
ts = get_typestore(Stores.ROS2_HUMBLE)
for typ, data in json.load(sys.stdin):
    m = ts.deserialize_cdr(bytes.fromhex(data), typ)
    again = bytes(ts.serialize_cdr(m, typ)).hex()
    assert again == data, (typ, data, again)
    if typ.endswith("JointState") and m.name:
        assert m.name == ["a", "bcd"] and list(m.position) == [1, 2] and list(m.effort) == [3] and m.header.frame_id == "base_link" and m.header.stamp.nanosec == 123456789, m
    if typ.endswith("/Image"):
        assert m.encoding == "bgr8" and m.step == 3 and bytes(m.data) == bytes([1, 2, 3, 4, 5, 6]), m
    if typ.endswith("CompressedImage"):
        assert m.format == "png"
    if typ.endswith("PointCloud2"):
        assert (m.width, m.height, m.point_step, m.row_step) == (3, 1, 12, 36) and [(f.name, f.offset, f.datatype, f.count) for f in m.fields] == [("x", 0, 7, 1), ("ring", 6, 4, 2)]
    if typ.endswith("Int64MultiArray"):
        assert [(d.label, d.size, d.stride) for d in m.layout.dim] == [("rows", 2, 6), ("columns", 3, 3)] and len(m.data) == 6
print("ok")
`)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	if out, err := cmd.Output(); err != nil || string(bytes.TrimSpace(out)) != "ok" {
		t.Fatal(err)
	}
	// The decoder returns the original timestamp, also before the epoch.
	s, _ := KnownSchema("sensor_msgs/JointState")
	for _, timestamp := range []int64{h.Timestamp, -5, 0} {
		msg := EncodeJointState(
			nil,
			Header{Timestamp: timestamp},
			[]string{"a"},
			[]float64{1},
			nil,
			nil,
		)
		top, err := NewTopic("/j", s, [][]byte{msg})
		if err != nil {
			t.Fatal(err)
		}
		if ns, ok, err := top.Timestamp(msg); ns != timestamp || !ok || err != nil {
			t.Errorf("%d, not %d: %v", ns, timestamp, err)
		}
	}
}

// TestEncoderRefuses checks that unsupported values are errors and not written incorrectly.
func TestEncoderRefuses(t *testing.T) {
	if _, err := EncodeImage(nil, Header{}, &robocache.Raw{
		Pix: make([]byte, 5), Height: 2,
		Width: 1, Channels: 3, DType: robocache.Uint8,
	}); err == nil {
		t.Error("an image with too few bytes")
	}
	if _, err := EncodeImage(nil, Header{}, &robocache.Raw{
		Pix: make([]byte, 6), Height: 1,
		Width: 1, Channels: 3, DType: robocache.Uint16,
	}); err == nil {
		t.Error("16-bit colour")
	}
	if _, err := EncodePointCloud2(nil, Header{}, []PointField{{"x", 0, robocache.Int64, 1}}, 0,
		make([]byte, 8)); err == nil {
		t.Error("a datatype that PointField lacks")
	}
	if _, err := EncodePointCloud2(nil, Header{}, []PointField{{"x", 0, robocache.Float32, 1}}, 0,
		make([]byte, 7)); err == nil {
		t.Error("no whole number of points")
	}
	if _, err := EncodeMultiArray(nil, robocache.Float64, []int{3}, nil, make([]byte, 8)); err ==
		nil {
		t.Error("a shape that the data does not have")
	}
	if _, err := EncodeMultiArray(nil, robocache.Bool, []int{1}, nil, []byte{1}); err == nil {
		t.Error("a MultiArray of bool")
	}
}
