package ros2

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// writer appends plain little-endian CDR. base is where the body begins: alignment counts from there.
type writer struct {
	b    []byte
	base int
}

func begin(dst []byte) writer {
	dst = append(dst, 0, 1, 0, 0)
	return writer{dst, len(dst)}
}

func (w *writer) align(n int) {
	for (len(w.b)-w.base)%n != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *writer) u8(v uint8) { w.b = append(w.b, v) }

func (w *writer) u32(v uint32) {
	w.align(4)
	w.b = binary.LittleEndian.AppendUint32(w.b, v)
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

// seq is a sequence of float64: an empty one has no padding after its count.
func (w *writer) seq(v []float64) {
	w.u32(uint32(len(v)))
	w.f64s(v)
}

func (w *writer) str(s string) {
	w.u32(uint32(len(s) + 1))
	w.b = append(append(w.b, s...), 0)
}

func (w *writer) bytes(p []byte) {
	w.u32(uint32(len(p)))
	w.b = append(w.b, p...)
}

func (w *writer) header(h Header) {
	sec := h.Timestamp / 1e9
	if h.Timestamp%1e9 < 0 {
		sec-- // nanosec is unsigned: seconds are rounded down
	}
	w.u32(uint32(int32(sec)))
	w.u32(uint32(h.Timestamp - sec*1e9))
	w.str(h.FrameID)
}

func encodeString(dst []byte, text string) []byte {
	w := begin(dst)
	w.str(text)
	return w.b
}

func encodeJointState(dst []byte, h Header, names []string, position, velocity, effort []float64) []byte {
	w := begin(dst)
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

func encodeImu(dst []byte, h Header, m *Imu) []byte {
	w := begin(dst)
	w.header(h)
	w.f64s(m.Orientation[:])
	w.f64s(m.OrientationCovariance[:])
	w.f64s(m.AngularVelocity[:])
	w.f64s(m.AngularVelocityCovariance[:])
	w.f64s(m.LinearAcceleration[:])
	w.f64s(m.LinearAccelCovariance[:])
	return w.b
}

func encodeWrenchStamped(dst []byte, h Header, wrench [6]float64) []byte {
	w := begin(dst)
	w.header(h)
	w.f64s(wrench[:])
	return w.b
}

func encodePoseStamped(dst []byte, h Header, pose [7]float64) []byte {
	w := begin(dst)
	w.header(h)
	w.f64s(pose[:])
	return w.b
}

func misuse(msg string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "encode", Msg: msg}
}

// encodingOf names the encoding of an image and its bytes a pixel.
func encodingOf(p *robocache.Raw) (name string, pixel int, err error) {
	switch {
	case p.DType == robocache.Uint8 && p.Channels == 1:
		return "mono8", 1, nil
	case p.DType == robocache.Uint8 && p.Channels == 3 && p.BGR:
		return "bgr8", 3, nil
	case p.DType == robocache.Uint8 && p.Channels == 3:
		return "rgb8", 3, nil
	case p.DType == robocache.Uint8 && p.Channels == 4 && p.BGR:
		return "bgra8", 4, nil
	case p.DType == robocache.Uint8 && p.Channels == 4:
		return "rgba8", 4, nil
	case p.DType == robocache.Uint16 && p.Channels == 1:
		return "16UC1", 2, nil
	case p.DType == robocache.Float32 && p.Channels == 1:
		return "32FC1", 4, nil
	}
	return "", 0, &robocache.Error{Class: robocache.ErrUnsupported, Op: "encode", Msg: "no image encoding for " + p.DType.String() + " images of " + strconv.Itoa(p.Channels) + " channels"}
}

func encodeImage(dst []byte, h Header, p *robocache.Raw) ([]byte, error) {
	name, pixel, err := encodingOf(p)
	if err != nil {
		return dst, err
	}
	row, step := p.Width*pixel, p.Stride
	if step == 0 {
		step = row
	}
	if p.Height < 0 || p.Width < 0 || step < row || p.Height > 0 && len(p.Pix) < (p.Height-1)*step+row {
		return dst, misuse("the image has fewer bytes than its size says")
	}
	w := begin(dst)
	w.header(h)
	w.u32(uint32(p.Height))
	w.u32(uint32(p.Width))
	w.str(name)
	w.u8(0)
	w.u32(uint32(row))
	w.u32(uint32(row * p.Height))
	for y := range p.Height {
		w.b = append(w.b, p.Pix[y*step:y*step+row]...)
	}
	return w.b, nil
}

func encodeCompressedImage(dst []byte, h Header, format string, data []byte) []byte {
	if format == "" {
		format = sniff(data)
	}
	w := begin(dst)
	w.header(h)
	w.str(format)
	w.bytes(data)
	return w.b
}

func encodeCompressedVideo(dst []byte, h Header, format string, packet []byte) []byte {
	w := begin(dst)
	w.header(h) // the same members, under other names
	w.bytes(packet)
	w.str(format)
	return w.b
}

// sniff names what the first bytes of a compressed image are; "" for none that is known.
func sniff(data []byte) string {
	switch {
	case len(data) > 2 && data[0] == 0xff && data[1] == 0xd8:
		return "jpeg"
	case len(data) > 7 && string(data[:8]) == "\x89PNG\r\n\x1a\n":
		return "png"
	case len(data) > 3 && (string(data[:4]) == "II*\x00" || string(data[:4]) == "MM\x00*"):
		return "tiff"
	}
	return ""
}

// pointTypes are the datatypes of sensor_msgs/PointField, by number.
var pointTypes = [...]robocache.DType{1: robocache.Int8, 2: robocache.Uint8, 3: robocache.Int16, 4: robocache.Uint16, 5: robocache.Int32, 6: robocache.Uint32, 7: robocache.Float32, 8: robocache.Float64}

func encodePointCloud2(dst []byte, h Header, fields []PointField, step int, data []byte) ([]byte, error) {
	end := 0
	for _, f := range fields {
		end = max(end, f.Offset+f.DType.Size()*max(f.Count, 1))
	}
	if step == 0 {
		step = end
	}
	if step < end || step == 0 || len(data)%step != 0 {
		return dst, misuse("a cloud's bytes are no whole number of points of " + strconv.Itoa(step) + " bytes, or its fields are wider")
	}
	w := begin(dst)
	w.header(h)
	w.u32(1)
	w.u32(uint32(len(data) / step))
	w.u32(uint32(len(fields)))
	for _, f := range fields {
		number := 0
		for k, d := range pointTypes {
			if k > 0 && d == f.DType {
				number = k
			}
		}
		if number == 0 {
			return dst, &robocache.Error{Class: robocache.ErrUnsupported, Op: "encode", Msg: "PointField has no datatype for " + f.DType.String(), Where: robocache.Where{"field": f.Name}}
		}
		w.str(f.Name)
		w.u32(uint32(f.Offset))
		w.u8(uint8(number))
		w.u32(uint32(max(f.Count, 1)))
	}
	w.u8(0)
	w.u32(uint32(step))
	w.u32(uint32(len(data)))
	w.bytes(data)
	w.u8(1)
	return w.b, nil
}

var multiArrays = map[robocache.DType]string{robocache.Float64: "Float64", robocache.Float32: "Float32", robocache.Int64: "Int64", robocache.Int32: "Int32", robocache.Int16: "Int16", robocache.Int8: "Int8",
	robocache.Uint64: "UInt64", robocache.Uint32: "UInt32", robocache.Uint16: "UInt16", robocache.Uint8: "UInt8"}

func multiArrayType(d robocache.DType) (string, bool) {
	n, ok := multiArrays[d]
	return "std_msgs/msg/" + n + "MultiArray", ok
}

func encodeMultiArray(dst []byte, d robocache.DType, shape []int, labels []string, data []byte) ([]byte, error) {
	if _, ok := multiArrays[d]; !ok {
		return dst, &robocache.Error{Class: robocache.ErrUnsupported, Op: "encode", Msg: "no MultiArray of " + d.String()}
	}
	n := 1
	for _, s := range shape {
		n *= s
	}
	if n*d.Size() != len(data) {
		return dst, misuse(strconv.Itoa(len(data)) + " bytes are not the shape's " + strconv.Itoa(n) + " elements")
	}
	w := begin(dst)
	w.u32(uint32(len(shape)))
	stride := n
	for k, s := range shape {
		label := ""
		if k < len(labels) {
			label = labels[k]
		}
		w.str(label)
		w.u32(uint32(s))
		w.u32(uint32(stride)) // elements of this dimension and all within: size × the next stride
		if s > 0 {
			stride /= s
		}
	}
	w.u32(0) // data_offset
	w.u32(uint32(n))
	if n > 0 {
		w.align(d.Size())
	}
	w.b = append(w.b, data...)
	return w.b, nil
}

func encodeTFMessage(dst []byte, transforms []Transform) []byte {
	w := begin(dst)
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
