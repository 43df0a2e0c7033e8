package ros2

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// A block is a message that is, behind its header and names, nothing but float64: poses, twists,
// wrenches, inertial samples. All its numbers lie in one run, whose place follows from the lengths
// of the strings before it.
type blockType struct {
	header  bool
	strings int // between the header and the numbers
	values  int
	parts   []part
}

// part is one stream of a block.
type part struct {
	suffix string
	at, n  int // float64s
	names  []string
	mode   string
	// of Imu: where the part's covariance is; its first value -1 says that the part is not given. 0
	// = always given
	given int
}

var (
	xyz  = []string{"x", "y", "z"}
	xyzw = []string{"x", "y", "z", "w"}
)

func vec(suffix string, at int) part { return part{suffix: suffix, at: at, n: 3, names: xyz} }
func quat(suffix string, at int) part {
	return part{suffix: suffix, at: at, n: 4, names: xyzw, mode: "slerp"}
}

func cov(suffix string, at, n int) part {
	return part{suffix: suffix, at: at, n: n, mode: "nearest"}
}

func block(header bool, values int, parts ...part) blockType {
	return blockType{header: header, values: values, parts: parts}
}

func named(b blockType) blockType {
	b.strings = 1
	return b
}

var (
	vec3Parts  = []part{{at: 0, n: 3, names: xyz}}
	quatParts  = []part{{at: 0, n: 4, names: xyzw, mode: "slerp"}}
	poseParts  = []part{vec(".position", 0), quat(".orientation", 3)}
	twistParts = []part{vec(".linear", 0), vec(".angular", 3)}
	forceParts = []part{vec(".force", 0), vec(".torque", 3)}
	moveParts  = []part{vec(".translation", 0), quat(".rotation", 3)}
)

// blockTypes: suffixes are the fields' own names, a wrapper's name left out where it is the only
// one (PoseStamped: ".position").
var blockTypes = map[string]blockType{
	"sensor_msgs/Imu": block(
		true,
		37,
		given(quat(".orientation", 0), 4),
		cov(".orientation_covariance", 4, 9),
		given(vec(".angular_velocity", 13), 16),
		cov(".angular_velocity_covariance", 16, 9),
		given(vec(".linear_acceleration", 25), 28),
		cov(".linear_acceleration_covariance", 28, 9),
	),
	"sensor_msgs/MagneticField": block(
		true,
		12,
		vec(".magnetic_field", 0),
		cov(".magnetic_field_covariance", 3, 9),
	),

	"geometry_msgs/Vector3":           block(false, 3, vec3Parts...),
	"geometry_msgs/Point":             block(false, 3, vec3Parts...),
	"geometry_msgs/Quaternion":        block(false, 4, quatParts...),
	"geometry_msgs/Pose":              block(false, 7, poseParts...),
	"geometry_msgs/Twist":             block(false, 6, twistParts...),
	"geometry_msgs/Accel":             block(false, 6, twistParts...),
	"geometry_msgs/Wrench":            block(false, 6, forceParts...),
	"geometry_msgs/Transform":         block(false, 7, moveParts...),
	"geometry_msgs/Vector3Stamped":    block(true, 3, vec3Parts...),
	"geometry_msgs/PointStamped":      block(true, 3, vec3Parts...),
	"geometry_msgs/QuaternionStamped": block(true, 4, quatParts...),
	"geometry_msgs/PoseStamped":       block(true, 7, poseParts...),
	"geometry_msgs/TwistStamped":      block(true, 6, twistParts...),
	"geometry_msgs/AccelStamped":      block(true, 6, twistParts...),
	"geometry_msgs/WrenchStamped":     block(true, 6, forceParts...),
	"geometry_msgs/TransformStamped":  named(block(true, 7, moveParts...)),

	"geometry_msgs/PoseWithCovarianceStamped": block(
		true,
		43,
		vec(".position", 0),
		quat(".orientation", 3),
		cov(".covariance", 7, 36),
	),
	"geometry_msgs/TwistWithCovarianceStamped": block(
		true,
		42,
		vec(".linear", 0),
		vec(".angular", 3),
		cov(".covariance", 6, 36),
	),
	"nav_msgs/Odometry": named(
		block(
			true,
			85,
			vec(".pose.position", 0),
			quat(".pose.orientation", 3),
			cov(".pose.covariance", 7, 36),
			vec(".twist.linear", 43),
			vec(".twist.angular", 46),
			cov(".twist.covariance", 49, 36),
		),
	),
}

func given(p part, covariance int) part {
	p.given = covariance
	return p
}

type blocks64 struct {
	onlyType
	blockType
	missing []int64 // rows in which a part is not given, by part
}

func newBlock(name string, b blockType) *blocks64 {
	return &blocks64{onlyType: onlyType(name), blockType: b, missing: make([]int64, len(b.parts))}
}

func (b *blocks64) layout(key string) ([]Field, []string) {
	var out []Field
	for k, p := range b.parts {
		out = append(out, Field{Suffix: p.suffix, Partial: p.given > 0, Feature: robocache.Feature{
			Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{p.n},
			Names: namesOf(p.names), Interpolation: p.mode, Masked: b.missing[k] > 0,
		}})
	}
	return out, []string{key}
}

// run finds the numbers.
func (b *blocks64) run(msg []byte) (data []byte, err error) {
	c := open(msg)
	if b.header {
		c.header()
	}
	for range b.strings {
		c.str()
	}
	data = c.elements(b.values, 8)
	return data, c.end(string(b.onlyType))
}

func (b *blocks64) scan(msg []byte, row rowFunc) error {
	data, err := b.run(msg)
	if err != nil {
		return err
	}
	for k := range b.parts {
		if row != nil && b.parts[k].absent(data) {
			b.missing[k]++
		}
	}
	return nil
}

func float(data []byte, k int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(data[8*k:]))
}

// absent says that the part is marked as not given and holds nothing. Drivers also mark parts whose
// covariance alone they do not know: values that are there are given.
func (p *part) absent(data []byte) bool {
	if p.given == 0 || float(data, p.given) != -1 {
		return false
	}
	for k := p.at; k < p.at+p.n; k++ {
		v := float(data, k)
		// the quaternion's default is (0, 0, 0, 1)
		if v != 0 && !(p.n == 4 && k == p.at+3 && v == 1) {
			return false
		}
	}
	return true
}

func (b *blocks64) row(msg []byte, _ int, fields []int, to rows) error {
	data, err := b.run(msg)
	if err != nil {
		return err
	}
	for j, f := range fields {
		p := &b.parts[f]
		dst, ok := to.at(j, 8*p.n), !p.absent(data)
		if ok {
			copy(dst, data[8*p.at:8*(p.at+p.n)])
		} else {
			clear(dst)
		}
		to.mark(j, ok)
	}
	return nil
}

func (b *blocks64) findings() []robocache.Finding {
	var out []robocache.Finding
	for k, n := range b.missing {
		out = append(out, counted(n, robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "imu-not-given",
			Where:    robocache.Where{"field": strings.TrimPrefix(b.parts[k].suffix, ".")},
			Message:  "the sender marks the part as not given (covariance -1): its rows are masked",
		})...)
	}
	return out
}
