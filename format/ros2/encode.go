package ros2

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Header is std_msgs/Header.
type Header struct {
	Timestamp int64 // nanoseconds since the epoch
	FrameID   string
}

// PointField is one field of a PointCloud2: Count elements of DType at Offset within a point.
type PointField struct {
	Name   string
	Offset int
	DType  robocache.DType
	Count  int
}

// EncodeString appends a std_msgs/msg/String to dst.
func EncodeString(dst []byte, text string) []byte {
	w := newWriter(dst)
	w.str(text)
	return w.b
}

// EncodeImage appends a sensor_msgs/msg/Image with packed or strided rows to dst. The encoding is
// rgb8, bgr8, mono8, rgba8, bgra8, 16UC1 or 32FC1, as the image requires.
func EncodeImage(dst []byte, h Header, p *robocache.Raw) ([]byte, error) {
	encoding, err := encodingOf(p)
	if err != nil {
		return dst, err
	}
	row := p.Width * p.Channels * p.DType.Size()
	step := cmp.Or(p.Stride, row)
	if p.Height < 0 || p.Width < 0 || step < row ||
		p.Height > 0 && len(p.Pix) < (p.Height-1)*step+row {
		return dst, misuseError("the image has fewer bytes than its size says")
	}
	w := newWriter(dst)
	w.header(h)
	w.u32(uint32(p.Height))
	w.u32(uint32(p.Width))
	w.str(encoding.name)
	w.u8(0)
	w.u32(uint32(row))
	w.u32(uint32(row * p.Height))
	for y := range p.Height {
		w.b = append(w.b, p.Pix[y*step:y*step+row]...)
	}
	return w.b, nil
}

// EncodeCompressedImage appends a sensor_msgs/msg/CompressedImage to dst. format is "jpeg" or
// "png". If it is empty, the bytes determine it.
func EncodeCompressedImage(dst []byte, h Header, format string, data []byte) []byte {
	if format == "" {
		format = imageFormat(data)
	}
	w := newWriter(dst)
	w.header(h)
	w.str(format)
	w.bytes(data)
	return w.b
}

// CompressedVideoType is foxglove's message type for video.
const CompressedVideoType = "foxglove_msgs/msg/CompressedVideo"

// VideoFormat returns the name of a codec in a CompressedVideo.
func VideoFormat(c video.Codec) string {
	if c == video.HEVC {
		return "h265"
	}
	return string(c)
}

// EncodeCompressedVideo appends a foxglove_msgs/msg/CompressedVideo to dst. packet decodes to one
// image (video.Elementary); it is empty for a row without an image.
func EncodeCompressedVideo(dst []byte, h Header, format string, packet []byte) []byte {
	w := newWriter(dst)
	w.header(h) // the same members, under other names
	w.bytes(packet)
	w.str(format)
	return w.b
}

// EncodePointCloud2 appends a sensor_msgs/msg/PointCloud2 with one row of points to dst. Each point
// has step bytes; 0 means up to the end of the last field.
func EncodePointCloud2(
	dst []byte,
	h Header,
	fields []PointField,
	step int,
	data []byte,
) ([]byte, error) {
	end := 0
	for _, f := range fields {
		end = max(end, f.Offset+f.DType.Size()*max(f.Count, 1))
	}
	step = cmp.Or(step, end)
	if step < end || step == 0 || len(data)%step != 0 {
		return dst, misuseError("a cloud's bytes are no whole number of points of " +
			strconv.Itoa(step) + " bytes, or its fields are wider")
	}
	w := newWriter(dst)
	w.header(h)
	w.u32(1)
	w.u32(uint32(len(data) / step))
	w.u32(uint32(len(fields)))
	for _, f := range fields {
		number := slices.Index(pointTypes[:], f.DType)
		if number <= 0 {
			return dst, robocache.Unsupported(
				"encode",
				robocache.Where{"field": f.Name},
				"PointField has no datatype for %s",
				f.DType.String(),
			)
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

// MultiArrayType returns the type with elements of d, such as "std_msgs/msg/Float64MultiArray". ok
// is false if there is no such type (bool, float16).
func MultiArrayType(d robocache.DType) (string, bool) {
	n, ok := multiArrays[d]
	return "std_msgs/msg/" + n + "MultiArray", ok
}

// EncodeMultiArray appends the MultiArray of d to dst. shape holds its dimensions, outermost first.
// The product of shape times d.Size() must be len(data). labels may be nil.
func EncodeMultiArray(
	dst []byte,
	d robocache.DType,
	shape []int,
	labels []string,
	data []byte,
) ([]byte, error) {
	if _, ok := multiArrays[d]; !ok {
		return dst, robocache.Unsupported("encode", nil, "no MultiArray of %s", d.String())
	}
	n := 1
	for _, s := range shape {
		n *= s
	}
	if n*d.Size() != len(data) {
		return dst, misuseError(
			strconv.Itoa(len(data)) + " bytes are not the shape's " + strconv.Itoa(n) + " elements",
		)
	}
	w := newWriter(dst)
	w.u32(uint32(len(shape)))
	stride := n
	for k, s := range shape {
		label := ""
		if k < len(labels) {
			label = labels[k]
		}
		w.str(label)
		w.u32(uint32(s))
		w.u32(uint32(stride)) // number of elements in this dimension and all inner ones
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

// writer appends plain little-endian CDR. base is the beginning of the body, from which alignment
// counts.
type writer struct {
	b    []byte
	base int
}

func newWriter(dst []byte) writer {
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
		sec-- // nanosec is unsigned, so seconds are rounded down
	}
	w.u32(uint32(int32(sec)))
	w.u32(uint32(h.Timestamp - sec*1e9))
	w.str(h.FrameID)
}

func misuseError(msg string) error {
	return robocache.Misuse("encode", nil, "%s", msg)
}

// imageFormat returns the format of a compressed image according to its first bytes, or "" if it is
// unknown.
func imageFormat(data []byte) string {
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

// pointTypes lists the datatypes of sensor_msgs/PointField by number.
var pointTypes = [...]robocache.DType{
	1: robocache.Int8,
	2: robocache.Uint8,
	3: robocache.Int16,
	4: robocache.Uint16,
	5: robocache.Int32,
	6: robocache.Uint32,
	7: robocache.Float32,
	8: robocache.Float64,
}

var multiArrays = map[robocache.DType]string{
	robocache.Float64: "Float64",
	robocache.Float32: "Float32",
	robocache.Int64:   "Int64",
	robocache.Int32:   "Int32",
	robocache.Int16:   "Int16",
	robocache.Int8:    "Int8",
	robocache.Uint64:  "UInt64",
	robocache.Uint32:  "UInt32",
	robocache.Uint16:  "UInt16",
	robocache.Uint8:   "UInt8",
}
