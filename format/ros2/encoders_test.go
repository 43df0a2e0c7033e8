package ros2

import (
	"encoding/binary"
	"math"
)

// EncodeJointState appends a sensor_msgs/msg/JointState. velocity and effort may be empty.
func EncodeJointState(
	dst []byte,
	h Header,
	names []string,
	position, velocity, effort []float64,
) []byte {
	w := newWriter(dst)
	w.header(h)
	w.u32(uint32(len(names)))
	for _, n := range names {
		w.str(n)
	}
	w.seq(position)
	w.seq(velocity)
	w.seq(effort)
	return w.b
}

// Imu is sensor_msgs/msg/Imu. If the first element of a covariance is -1, its part is absent.
type Imu struct {
	Orientation                                                             [4]float64 // x, y, z, w
	AngularVelocity, LinearAcceleration                                     [3]float64
	OrientationCovariance, AngularVelocityCovariance, LinearAccelCovariance [9]float64
}

// EncodeImu appends a sensor_msgs/msg/Imu.
func EncodeImu(dst []byte, h Header, m *Imu) []byte {
	w := newWriter(dst)
	w.header(h)
	w.f64s(m.Orientation[:])
	w.f64s(m.OrientationCovariance[:])
	w.f64s(m.AngularVelocity[:])
	w.f64s(m.AngularVelocityCovariance[:])
	w.f64s(m.LinearAcceleration[:])
	w.f64s(m.LinearAccelCovariance[:])
	return w.b
}

// EncodeWrenchStamped appends a geometry_msgs/msg/WrenchStamped: force x y z, torque x y z.
func EncodeWrenchStamped(dst []byte, h Header, wrench [6]float64) []byte {
	w := newWriter(dst)
	w.header(h)
	w.f64s(wrench[:])
	return w.b
}

// EncodeTwistStamped appends a geometry_msgs/msg/TwistStamped: linear x y z, angular x y z.
func EncodeTwistStamped(dst []byte, h Header, twist [6]float64) []byte {
	return EncodeWrenchStamped(dst, h, twist)
}

// EncodePoseStamped appends a geometry_msgs/msg/PoseStamped: position x y z, orientation x y z w.
func EncodePoseStamped(dst []byte, h Header, pose [7]float64) []byte {
	w := newWriter(dst)
	w.header(h)
	w.f64s(pose[:])
	return w.b
}

// Transform is one transform of a TFMessage.
type Transform struct {
	Header      Header // FrameID is the parent
	Child       string
	Translation [3]float64
	Rotation    [4]float64 // x, y, z, w
}

// EncodeTFMessage appends a tf2_msgs/msg/TFMessage.
func EncodeTFMessage(dst []byte, transforms []Transform) []byte {
	w := newWriter(dst)
	w.u32(uint32(len(transforms)))
	for k := range transforms {
		t := &transforms[k]
		w.header(t.Header)
		w.str(t.Child)
		w.f64s(t.Translation[:])
		w.f64s(t.Rotation[:])
	}
	return w.b
}

func (w *writer) f64(v float64) {
	w.align(8)
	w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(v))
}

func (w *writer) f64s(v []float64) {
	for _, x := range v {
		w.f64(x)
	}
}

// seq appends a sequence of float64. An empty one has no padding after its count.
func (w *writer) seq(v []float64) {
	w.u32(uint32(len(v)))
	w.f64s(v)
}
