package ros2

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// blockType describes a message that contains only float64 values after its header and strings:
// poses, twists, wrenches, inertial samples. All its numbers are contiguous. Their position follows
// from the lengths of the strings before them.
type blockType struct {
	header  bool
	strings int // strings between the header and the numbers
	values  int
	parts   []part
}

// part is one stream of a block.
type part struct {
	suffix string
	at, n  int // position and number of float64 values
	names  []string
	mode   string
	// Position of the part's covariance in Imu messages. If its first value is -1, the part is
	// absent. 0 means that the part is always present.
	covarianceAt int
}

var (
	xyz  = []string{"x", "y", "z"}
	xyzw = []string{"x", "y", "z", "w"}
)

func vectorPart(
	suffix string,
	at int,
) part {
	return part{suffix: suffix, at: at, n: 3, names: xyz}
}

func quaternionPart(suffix string, at int) part {
	return part{suffix: suffix, at: at, n: 4, names: xyzw, mode: "slerp"}
}

func covariancePart(suffix string, at, n int) part {
	return part{suffix: suffix, at: at, n: n, mode: "nearest"}
}

func newBlockType(header bool, values int, parts ...part) blockType {
	return blockType{header: header, values: values, parts: parts}
}

func withString(b blockType) blockType {
	b.strings = 1
	return b
}

var (
	vec3Parts  = []part{{at: 0, n: 3, names: xyz}}
	quatParts  = []part{{at: 0, n: 4, names: xyzw, mode: "slerp"}}
	poseParts  = []part{vectorPart(".position", 0), quaternionPart(".orientation", 3)}
	twistParts = []part{vectorPart(".linear", 0), vectorPart(".angular", 3)}
	forceParts = []part{vectorPart(".force", 0), vectorPart(".torque", 3)}
	moveParts  = []part{vectorPart(".translation", 0), quaternionPart(".rotation", 3)}
)

// blockTypes maps types to their layout. Suffixes are the names of the fields. The name of a
// wrapper is omitted if it is the only one (PoseStamped: ".position").
var blockTypes = map[string]blockType{
	"sensor_msgs/Imu": newBlockType(
		true,
		37,
		withCovariance(quaternionPart(".orientation", 0), 4),
		covariancePart(".orientation_covariance", 4, 9),
		withCovariance(vectorPart(".angular_velocity", 13), 16),
		covariancePart(".angular_velocity_covariance", 16, 9),
		withCovariance(vectorPart(".linear_acceleration", 25), 28),
		covariancePart(".linear_acceleration_covariance", 28, 9),
	),
	"sensor_msgs/MagneticField": newBlockType(
		true,
		12,
		vectorPart(".magnetic_field", 0),
		covariancePart(".magnetic_field_covariance", 3, 9),
	),

	"geometry_msgs/Vector3":           newBlockType(false, 3, vec3Parts...),
	"geometry_msgs/Point":             newBlockType(false, 3, vec3Parts...),
	"geometry_msgs/Quaternion":        newBlockType(false, 4, quatParts...),
	"geometry_msgs/Pose":              newBlockType(false, 7, poseParts...),
	"geometry_msgs/Twist":             newBlockType(false, 6, twistParts...),
	"geometry_msgs/Accel":             newBlockType(false, 6, twistParts...),
	"geometry_msgs/Wrench":            newBlockType(false, 6, forceParts...),
	"geometry_msgs/Transform":         newBlockType(false, 7, moveParts...),
	"geometry_msgs/Vector3Stamped":    newBlockType(true, 3, vec3Parts...),
	"geometry_msgs/PointStamped":      newBlockType(true, 3, vec3Parts...),
	"geometry_msgs/QuaternionStamped": newBlockType(true, 4, quatParts...),
	"geometry_msgs/PoseStamped":       newBlockType(true, 7, poseParts...),
	"geometry_msgs/TwistStamped":      newBlockType(true, 6, twistParts...),
	"geometry_msgs/AccelStamped":      newBlockType(true, 6, twistParts...),
	"geometry_msgs/WrenchStamped":     newBlockType(true, 6, forceParts...),
	"geometry_msgs/TransformStamped":  withString(newBlockType(true, 7, moveParts...)),

	"geometry_msgs/PoseWithCovarianceStamped": newBlockType(
		true,
		43,
		vectorPart(".position", 0),
		quaternionPart(".orientation", 3),
		covariancePart(".covariance", 7, 36),
	),
	"geometry_msgs/TwistWithCovarianceStamped": newBlockType(
		true,
		42,
		vectorPart(".linear", 0),
		vectorPart(".angular", 3),
		covariancePart(".covariance", 6, 36),
	),
	"nav_msgs/Odometry": withString(
		newBlockType(
			true,
			85,
			vectorPart(".pose.position", 0),
			quaternionPart(".pose.orientation", 3),
			covariancePart(".pose.covariance", 7, 36),
			vectorPart(".twist.linear", 43),
			vectorPart(".twist.angular", 46),
			covariancePart(".twist.covariance", 49, 36),
		),
	),
}

func withCovariance(p part, covariance int) part {
	p.covarianceAt = covariance
	return p
}

type blockDecoder struct {
	onlyType
	blockType
	missing []int64 // per part, the number of rows without it
}

func newBlockDecoder(name string, b blockType) *blockDecoder {
	return &blockDecoder{
		onlyType:  onlyType(name),
		blockType: b,
		missing:   make([]int64, len(b.parts)),
	}
}

func (b *blockDecoder) streamLayout(key string) ([]Field, []string) {
	var out []Field
	for k, p := range b.parts {
		out = append(
			out,
			Field{Suffix: p.suffix, Partial: p.covarianceAt > 0, Feature: robocache.Feature{
				Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{p.n},
				Names: encodeNames(p.names), Interpolation: p.mode, Masked: b.missing[k] > 0,
			}},
		)
	}
	return out, []string{key}
}

// numbers returns the numbers of a message.
func (b *blockDecoder) numbers(msg []byte) (data []byte, err error) {
	c := newCursor(msg)
	if b.header {
		c.header()
	}
	for range b.strings {
		c.str()
	}
	data = c.elements(b.values, 8)
	return data, c.finish(string(b.onlyType))
}

func (b *blockDecoder) scanMessage(msg []byte, row rowFunc) error {
	data, err := b.numbers(msg)
	if err != nil {
		return err
	}
	for k := range b.parts {
		if row != nil && b.parts[k].isAbsent(data) {
			b.missing[k]++
		}
	}
	return nil
}

func floatAt(data []byte, k int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(data[8*k:]))
}

// isAbsent reports whether the part is marked as absent and has default values. Some drivers mark
// parts of which only the covariance is unknown, so a part with other values is present.
func (p *part) isAbsent(data []byte) bool {
	if p.covarianceAt == 0 || floatAt(data, p.covarianceAt) != -1 {
		return false
	}
	for k := p.at; k < p.at+p.n; k++ {
		v := floatAt(data, k)
		// The default quaternion is (0, 0, 0, 1).
		if v != 0 && !(p.n == 4 && k == p.at+3 && v == 1) {
			return false
		}
	}
	return true
}

func (b *blockDecoder) decodeRow(msg []byte, _ int, fields []int, to rows) error {
	data, err := b.numbers(msg)
	if err != nil {
		return err
	}
	for j, f := range fields {
		p := &b.parts[f]
		dst, ok := to.rowOf(j, 8*p.n), !p.isAbsent(data)
		if ok {
			copy(dst, data[8*p.at:8*(p.at+p.n)])
		} else {
			clear(dst)
		}
		to.setValid(j, ok)
	}
	return nil
}

func (b *blockDecoder) scanFindings() []robocache.Finding {
	var out []robocache.Finding
	for k, n := range b.missing {
		out = append(out, countedFinding(n, robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "imu-not-given",
			Where:    robocache.Where{"field": strings.TrimPrefix(b.parts[k].suffix, ".")},
			Message:  "the sender marks the part as not given (covariance -1): its rows are masked",
		})...)
	}
	return out
}
