package ros2

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Header is std_msgs/Header.
type Header struct {
	Timestamp int64 // ns since the epoch
	FrameID   string
}

// PointField is one field of a PointCloud2: Count elements of DType at Offset within a point.
type PointField struct {
	Name   string
	Offset int
	DType  robocache.DType
	Count  int
}

// Encode… append a message to dst, from the encapsulation header on, and return it. Names of their types and texts: SchemaText.

// EncodeString is std_msgs/msg/String.
func EncodeString(dst []byte, text string) []byte { return encodeString(dst, text) }

// EncodeJointState is sensor_msgs/msg/JointState; velocity and effort may be empty.
func EncodeJointState(dst []byte, h Header, names []string, position, velocity, effort []float64) []byte {
	return encodeJointState(dst, h, names, position, velocity, effort)
}

// Imu is sensor_msgs/msg/Imu; a covariance whose first element is -1 marks its part as not given.
type Imu struct {
	Orientation                                                             [4]float64 // x, y, z, w
	AngularVelocity, LinearAcceleration                                     [3]float64
	OrientationCovariance, AngularVelocityCovariance, LinearAccelCovariance [9]float64
}

// EncodeImu is sensor_msgs/msg/Imu.
func EncodeImu(dst []byte, h Header, m *Imu) []byte { return encodeImu(dst, h, m) }

// EncodeWrenchStamped is geometry_msgs/msg/WrenchStamped: force x y z, torque x y z.
func EncodeWrenchStamped(dst []byte, h Header, wrench [6]float64) []byte {
	return encodeWrenchStamped(dst, h, wrench)
}

// EncodeTwistStamped is geometry_msgs/msg/TwistStamped: linear x y z, angular x y z.
func EncodeTwistStamped(dst []byte, h Header, twist [6]float64) []byte {
	return encodeWrenchStamped(dst, h, twist)
}

// EncodePoseStamped is geometry_msgs/msg/PoseStamped: position x y z, orientation x y z w.
func EncodePoseStamped(dst []byte, h Header, pose [7]float64) []byte {
	return encodePoseStamped(dst, h, pose)
}

// EncodeImage is sensor_msgs/msg/Image of packed or strided rows: rgb8, bgr8, mono8, rgba8, bgra8, 16UC1 or 32FC1 by the image.
func EncodeImage(dst []byte, h Header, p *robocache.Raw) ([]byte, error) {
	return encodeImage(dst, h, p)
}

// EncodeCompressedImage is sensor_msgs/msg/CompressedImage; format is "jpeg" or "png", "" looks at the bytes.
func EncodeCompressedImage(dst []byte, h Header, format string, data []byte) []byte {
	return encodeCompressedImage(dst, h, format, data)
}

// CompressedVideoType is foxglove's type of video in messages.
const CompressedVideoType = "foxglove_msgs/msg/CompressedVideo"

// VideoFormat is the name of a codec in a CompressedVideo.
func VideoFormat(c video.Codec) string {
	if c == video.HEVC {
		return "h265"
	}
	return string(c)
}

// EncodeCompressedVideo is foxglove_msgs/msg/CompressedVideo: a packet that decodes to one image (video.Elementary); none where the row has none.
func EncodeCompressedVideo(dst []byte, h Header, format string, packet []byte) []byte {
	return encodeCompressedVideo(dst, h, format, packet)
}

// EncodePointCloud2 is sensor_msgs/msg/PointCloud2 of one row of points, each step bytes (0 = to the end of the last field).
func EncodePointCloud2(dst []byte, h Header, fields []PointField, step int, data []byte) ([]byte, error) {
	return encodePointCloud2(dst, h, fields, step, data)
}

// MultiArrayType is the type whose elements are d: "std_msgs/msg/Float64MultiArray" …; !ok for a dtype that none has (bool, float16).
func MultiArrayType(d robocache.DType) (string, bool) { return multiArrayType(d) }

// EncodeMultiArray is the MultiArray of d. shape names its dimensions, outermost first; its product × d.Size() is len(data). labels may
// be nil.
func EncodeMultiArray(dst []byte, d robocache.DType, shape []int, labels []string, data []byte) ([]byte, error) {
	return encodeMultiArray(dst, d, shape, labels, data)
}

// Transform is one of a TFMessage.
type Transform struct {
	Header      Header // FrameID is the parent
	Child       string
	Translation [3]float64
	Rotation    [4]float64 // x, y, z, w
}

// EncodeTFMessage is tf2_msgs/msg/TFMessage.
func EncodeTFMessage(dst []byte, transforms []Transform) []byte {
	return encodeTFMessage(dst, transforms)
}
