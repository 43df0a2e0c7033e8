package ros2

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// everything reads all fields of a message.
func everything(t *testing.T, top *Topic, msg []byte) {
	t.Helper()
	rows := map[int]int{}
	hostile.Typed(t, top.Scan(msg, func(clock, entry int, _ int64, _ bool) { rows[clock] = entry }))
	_, _, err := top.Timestamp(msg)
	hostile.Typed(t, err)
	hostile.Typed(t, err)
	for k, f := range top.Fields() {
		if k == 64 {
			break
		}
		switch {
		case f.Feature.Kind == robocache.KindImage:
			_, err = top.Image(msg, k, 0)
		case f.Feature.Kind == robocache.KindText:
			_, err = top.Text(msg, k, 0)
		case f.Feature.Ragged():
			_, _, err = top.Ragged(msg, k, 0, nil)
		case f.Feature.RowBytes() > 1<<20:
			continue
		default:
			_, err = top.Numeric(msg, k, rows[f.Clock], make([]byte, f.Feature.RowBytes()))
		}
		hostile.Typed(t, err)
	}
}

// FuzzMessage decodes any bytes as a message of any known type, after a first message that may
// differ (ros2.R2, ros2.R3).
func FuzzMessage(f *testing.F) {
	names := []string{
		"sensor_msgs/JointState",
		"sensor_msgs/Imu",
		"sensor_msgs/Image",
		"sensor_msgs/CompressedImage",
		"sensor_msgs/PointCloud2",
		"tf2_msgs/TFMessage",
		"std_msgs/Float64MultiArray",
		"std_msgs/String",
		"nav_msgs/Odometry",
		"rcl_interfaces/ParameterEvent",
		"sensor_msgs/CameraInfo",
		"visualization_msgs/MarkerArray",
		"diagnostic_msgs/DiagnosticArray",
	}
	h := Header{5, "f"}
	joint := EncodeJointState(nil, h, []string{"a", "b"}, []float64{1, 2}, nil, nil)
	f.Add(
		uint8(0),
		joint,
		EncodeJointState(nil, h, []string{"b", "a"}, []float64{1, 2}, []float64{1}, nil),
	)
	f.Add(uint8(1), EncodeImu(nil, h, &Imu{}), joint)
	img, _ := EncodeImage(
		nil,
		h,
		&robocache.Raw{
			Pix:      make([]byte, 12),
			Height:   2,
			Width:    2,
			Channels: 3,
			DType:    robocache.Uint8,
		},
	)
	f.Add(uint8(2), img, img)
	f.Add(
		uint8(3),
		EncodeCompressedImage(
			nil,
			h,
			"32FC1; compressedDepth",
			[]byte("000000000000\x89PNG\r\n\x1a\n"),
		),
		img,
	)
	cloud, _ := EncodePointCloud2(
		nil,
		h,
		[]PointField{
			{"x", 0, robocache.Float32, 1},
			{"y", 4, robocache.Float32, 1},
			{"z", 8, robocache.Float32, 1},
			{"r", 12, robocache.Uint16, 1},
		},
		0,
		make([]byte, 28),
	)
	f.Add(uint8(4), cloud, cloud)
	tf := EncodeTFMessage(nil, []Transform{{Header: h, Child: "c"}, {Header: h, Child: "d"}})
	f.Add(uint8(5), tf, tf)
	multi, _ := EncodeMultiArray(nil, robocache.Float64, []int{1, 2}, nil, make([]byte, 16))
	f.Add(uint8(6), multi, multi)
	f.Add(uint8(7), EncodeString(nil, "text"), []byte{0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, kind uint8, first, msg []byte) {
		s, _ := KnownSchema(names[int(kind)%len(names)])
		before := hostile.Allocated()
		top, err := NewTopic("/t", s, [][]byte{first})
		hostile.Typed(t, err)
		if err == nil {
			everything(t, top, msg)
		}
		if got := hostile.Allocated() - before; got > uint64(8<<20+4000*(len(first)+len(msg))) {
			t.Errorf("%d bytes were allocated for %d", got, len(first)+len(msg))
		}
	})
}

// FuzzSchema parses any text as a schema and decodes a message with it (ros2.R2, ros2.R4).
func FuzzSchema(f *testing.F) {
	text, _ := SchemaText("sensor_msgs/PointCloud2")
	f.Add(false, text, []byte{0, 1, 0, 0})
	f.Add(
		false,
		"own/B[] b\nstring<=5[<=3] s\nwstring w\nint32 X=1\n"+strings.Repeat(
			"=",
			80,
		)+"\nMSG: own/B\nfloat64[1000000] x\nB[2] c\n",
		[]byte{0, 1, 0, 0, 9, 9, 9, 9},
	)
	f.Add(true, idlText, []byte{0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, idl bool, text string, msg []byte) {
		before := hostile.Allocated()
		encoding := "ros2msg"
		if idl {
			encoding = "ros2idl"
		}
		s, err := ParseSchema(encoding, "own/msg/A", text)
		hostile.Typed(t, err)
		if err == nil {
			top, err := NewTopic("/t", s, [][]byte{msg})
			hostile.Typed(t, err)
			if err == nil {
				everything(t, top, msg)
			}
		}
		if got := hostile.Allocated() - before; got > uint64(64<<20+4000*(len(text)+len(msg))) {
			t.Errorf("%d bytes were allocated for %d", got, len(text)+len(msg))
		}
	})
}

// TestCut checks that a message truncated at any offset is a value, an invalid row or a typed
// error, and never a panic (ros2.R3).
func TestCut(t *testing.T) {
	cases := 0
	for _, s := range specials(t) {
		if len(s.msgs[0]) > 4000 {
			continue
		}
		schema, _ := KnownSchema(s.Type)
		top, err := NewTopic("/t", schema, s.msgs[:1])
		if err != nil {
			t.Fatal(err)
		}
		for n := range s.msgs[0] {
			everything(t, top, s.msgs[0][:n:n])
		}
		for n := range min(len(s.msgs[0]), 300) {
			for _, v := range []byte{0, 255, s.msgs[0][n] + 1, s.msgs[0][n] - 1} {
				bad := append([]byte{}, s.msgs[0]...)
				bad[n] = v
				everything(t, top, bad)
			}
		}
		cases++
	}
	if cases < 20 {
		t.Errorf("only %d cases", cases)
	}
}

// TestMissingBytes checks that up to three bytes after a message are padding, and that missing
// bytes are Malformed with the field (ros2.R3).
func TestMissingBytes(t *testing.T) {
	s, _ := KnownSchema("sensor_msgs/Imu")
	msg := EncodeImu(nil, Header{1, "imu"}, &Imu{})
	top, err := NewTopic("/imu", s, [][]byte{append(msg[:len(msg):len(msg)], 0, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = top.Numeric(msg[:len(msg)-1], 0, 0, make([]byte, 32))
	if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), "Imu") {
		t.Error(err)
	}
	g, _ := KnownSchema("rcl_interfaces/Log")
	logs, err := NewTopic("/rosout", g, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = logs.Text(
		[]byte{0, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'a', 'b'},
		1,
		0,
	)
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["field"] != "name" {
		t.Error(err)
	}
	for _, id := range []byte{2, 3, 8, 9, 0x12} {
		if _, err := top.Numeric(append([]byte{0, id, 0, 0}, msg[4:]...), 0, 0,
			make([]byte, 32)); !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("representation %d: %v", id, err)
		}
	}
}

// TestXCDR2 checks that XCDR2 aligns 8-byte values to 4.
func TestXCDR2(t *testing.T) {
	s, err := ParseSchema("ros2msg", "own/msg/A", "uint32 a\nfloat64 b\nuint8 c\nfloat64[] d\n")
	if err != nil {
		t.Fatal(err)
	}
	msg, _ := hex.DecodeString(
		"0007000001000000" + "000000000000f03f" + "05000000" + "01000000" + "0000000000000040",
	)
	top, err := NewTopic("/a", s, [][]byte{msg})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range []string{"01000000", "000000000000f03f", "05", "0000000000000040"} {
		f := top.Fields()[k].Feature
		dst := make([]byte, f.RowBytes())
		if ok, err := top.Numeric(msg, k, 0, dst); err != nil || !ok ||
			hex.EncodeToString(dst) != want {
			t.Errorf("%s: %x, %v", f.Key, dst, err)
		}
	}
}

// TestHugeSizes checks that sizes whose product exceeds 64 bits are rejected.
func TestHugeSizes(t *testing.T) {
	raw := &robocache.Raw{
		Pix:      make([]byte, 4),
		Height:   2,
		Width:    2,
		Channels: 1,
		DType:    robocache.Uint8,
	}
	img, _ := EncodeImage(nil, Header{}, raw)
	// header: 8 bytes of timestamp, a length of 1 with its NUL, 3 of padding; then height and
	// width, encoding "mono8", byte order, step
	huge := append([]byte{}, img...)
	for k := 20; k < 28; k++ {
		huge[k] = 0xff
	}
	copy(huge[40:44], []byte{0xff, 0xff, 0xff, 0xff})
	s, _ := KnownSchema("sensor_msgs/Image")
	top, err := NewTopic("/i", s, [][]byte{img})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := top.Image(huge, 0, 0); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Error(err)
	}
	cloud, _ := EncodePointCloud2(
		nil,
		Header{},
		[]PointField{
			{"x", 0, robocache.Float32, 1},
			{"y", 4, robocache.Float32, 1},
			{"z", 8, robocache.Float32, 1},
		},
		0,
		make([]byte, 12),
	)
	if s, _ = KnownSchema("sensor_msgs/PointCloud2"); s == nil {
		t.Fatal("no schema")
	}
	if top, err = NewTopic("/c", s, [][]byte{cloud}); err != nil {
		t.Fatal(err)
	}
	huge = append([]byte{}, cloud...)
	for k := 20; k < 28; k++ {
		huge[k] = 0xff
	}
	if _, _, err := top.Ragged(huge, 0, 0, nil); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}

// TestUnsupportedImages checks that errors name the unsupported format.
func TestUnsupportedImages(t *testing.T) {
	s, _ := KnownSchema("sensor_msgs/Image")
	raw := &robocache.Raw{
		Pix:      make([]byte, 4),
		Height:   2,
		Width:    2,
		Channels: 1,
		DType:    robocache.Uint8,
	}
	msg, _ := EncodeImage(nil, Header{}, raw)
	for _, enc := range []string{"bayer_rggb8", "nv21", "32FC3"} {
		w := newWriter(nil)
		w.header(Header{})
		w.u32(2)
		w.u32(2)
		w.str(enc)
		w.u8(0)
		w.u32(2)
		w.bytes(make([]byte, 4))
		if _, err := NewTopic("/i", s, [][]byte{w.b}); !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(err.Error(), enc) {
			t.Errorf("%s: %v", enc, err)
		}
	}
	if _, err := NewTopic("/i", s, [][]byte{msg}); err != nil {
		t.Error(err)
	}
	c, _ := KnownSchema("sensor_msgs/CompressedImage")
	for format, data := range map[string]string{
		"av1":                        "\x12\x00\x0a\x0b",
		"vp9":                        "\x82\x49\x83\x42",
		"h264":                       "\x00\x00\x00\x09\x67",
		"16UC1; compressedDepth rvl": "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02",
	} {
		if _, err := NewTopic("/c", c,
			[][]byte{EncodeCompressedImage(nil, Header{}, format, []byte(data))}); !errors.Is(err,
			robocache.ErrUnsupported) || !strings.Contains(err.Error(), strings.Fields(format)[0]) {
			t.Errorf("%s: %v", format, err)
		}
	}
	if _, err := NewTopic(
		"/c",
		c,
		[][]byte{EncodeCompressedImage(nil, Header{}, "h264", []byte("\x00\x00\x00\x01\x67"))},
	); !errors.Is(
		err,
		robocache.ErrMalformed,
	) {
		t.Error(err)
	}
	// An empty one is a missing image.
	top, err := NewTopic("/c", c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ref, err := top.Image(EncodeCompressedImage(nil, Header{}, "jpeg", nil), 0, 0); err != nil ||
		!ref.Missing {
		t.Errorf("%+v, %v", ref, err)
	}
}
