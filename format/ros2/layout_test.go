package ros2

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// restored returns the topic that is made from the layout of top, through JSON.
func restoredFrom(t *testing.T, top *Topic) *Topic {
	t.Helper()
	text, err := json.Marshal(top.Layout())
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(top.Layout()); string(again) != string(text) {
		t.Errorf("the layout is not deterministic: %s, %s", text, again)
	}
	encoding, schema := top.Schema().Source()
	s, err := LoadSchema(encoding, top.Schema().Name, schema)
	if err != nil || !s.Equal(top.Schema()) {
		t.Fatalf("the schema of %s is not restored: %v", top.Schema().Name, err)
	}
	out, err := RestoreTopic(top.name, s, text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !reflect.DeepEqual(out.Fields(), top.Fields()) ||
		!reflect.DeepEqual(out.Clocks(), top.Clocks()) {
		t.Errorf("fields %+v, want %+v", out.Fields(), top.Fields())
	}
	return out
}

// contentOf returns all rows of a message: their clocks and times, and the values of all fields.
func contentOf(t *testing.T, top *Topic, msg []byte) (out []any) {
	t.Helper()
	entries := map[int]int{}
	err := top.Scan(msg, func(clock, entry int, timestamp int64, stamped bool) {
		entries[clock] = entry
		out = append(out, clock, entry, timestamp, stamped)
	})
	if err != nil {
		t.Fatal(err)
	}
	for k, f := range top.Fields() {
		entry, ok := entries[f.Clock]
		if !ok {
			continue
		}
		var v [2]any
		switch {
		case f.Feature.Kind == robocache.KindImage:
			v[0], err = top.Image(msg, k, entry)
		case f.Feature.Kind == robocache.KindVideo:
			v[0], v[1], err = top.Packet(msg)
		case f.Feature.Kind == robocache.KindText || f.Feature.Kind == robocache.KindEvent:
			v[0], err = top.Text(msg, k, entry)
		case f.Feature.Ragged():
			v[0], v[1], err = top.Ragged(msg, k, entry, nil)
		default:
			row := make([]byte, f.Feature.RowBytes())
			v[1], err = top.Numeric(msg, k, entry, row)
			v[0] = row
		}
		if err != nil {
			t.Fatalf("%s%s: %v", top.name, f.Suffix, err)
		}
		out = append(out, v)
	}
	return out
}

// TestRestoreTopic checks that a restored topic has the fields of its recording and decodes every
// message to the same values: the hard cases of each type, and every type that rosbags knows
// (ros2.R12).
func TestRestoreTopic(t *testing.T) {
	messages, types, name := map[string][][]byte{}, map[string]*Schema{}, ""
	for _, s := range specials(t) {
		messages[s.Case] = s.msgs
		types[s.Case], _ = KnownSchema(s.Type)
	}
	for _, j := range referenceMessages(t, "3") {
		s, err := ParseSchema("ros2msg", j.Type, j.Schema)
		if err != nil {
			t.Fatal(err)
		}
		name = j.Type
		messages[name], types[name] = append(messages[name], j.raw), s
	}
	compared := 0
	for name, msgs := range messages {
		top, err := NewTopic("/a/b", types[name], msgs)
		if err != nil {
			continue // images and clouds of random bytes
		}
		readable := msgs[:0:0]
		for _, m := range msgs {
			if top.Scan(m, func(int, int, int64, bool) {}) == nil {
				readable = append(readable, m)
			}
		}
		live := restoredFrom(t, top)
		for k, m := range readable {
			if err := live.CheckSize(m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			want, got := contentOf(t, top, m), contentOf(t, live, m)
			if !equalContent(want, got) {
				t.Errorf("%s, message %d:\n%v\nwant\n%v", name, k, got, want)
			}
			compared++
		}
		if again, _ := json.Marshal(live.Layout()); !json.Valid(again) {
			t.Errorf("%s: %s", name, again)
		}
	}
	if compared < 300 {
		t.Errorf("only %d messages were compared", compared)
	}
}

// equalContent compares values through JSON, which is exact for bytes and numbers and has one form
// for the bits of each slice of bytes.
func equalContent(a, b []any) bool {
	x, err := json.Marshal(a)
	y, other := json.Marshal(b)
	return err == nil && other == nil && string(x) == string(y)
}

func jointMessageOf(names []string, values ...float64) []byte {
	return EncodeJointState(nil, Header{Timestamp: 5}, names, values, nil, nil)
}

func imageOf(t *testing.T, height, width, channels int, bgr bool) []byte {
	t.Helper()
	msg, err := EncodeImage(nil, Header{}, &robocache.Raw{
		Pix:      make([]byte, height*width*channels),
		Height:   height,
		Width:    width,
		Channels: channels,
		DType:    robocache.Uint8,
		BGR:      bgr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func arrayOf(n int) []byte {
	msg, _ := EncodeMultiArray(nil, robocache.Float64, []int{n}, nil, make([]byte, 8*n))
	return msg
}

func cloudOf(t *testing.T, last string) []byte {
	t.Helper()
	fields := []PointField{
		{"x", 0, robocache.Float32, 1},
		{"y", 4, robocache.Float32, 1},
		{"z", 8, robocache.Float32, 1},
		{last, 12, robocache.Float32, 1},
	}
	msg, err := EncodePointCloud2(nil, Header{}, fields, 0, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// TestMessageDoesNotFit checks that a message that differs from the recording is an error that
// names the expected and the found value.
func TestMessageDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		name, typ   string
		first, live []byte
		want        []string
	}{
		{
			name:  "joints of another robot",
			typ:   "sensor_msgs/JointState",
			first: jointMessageOf([]string{"arm", "wrist"}, 1, 2),
			live:  jointMessageOf([]string{"wheel"}, 1),
			want:  []string{`["arm","wrist"]`, "wheel"},
		},
		{
			name:  "a missing joint",
			typ:   "sensor_msgs/JointState",
			first: jointMessageOf([]string{"arm", "wrist"}, 1, 2),
			live:  jointMessageOf([]string{"arm"}, 1),
			want:  []string{`["arm","wrist"]`, "found arm; 1 of position"},
		},
		{
			name:  "another encoding",
			typ:   "sensor_msgs/Image",
			first: imageOf(t, 4, 6, 3, false),
			live:  imageOf(t, 4, 6, 3, true),
			want:  []string{"rgb8, 6×4", "bgr8, 6×4"},
		},
		{
			name:  "another size",
			typ:   "sensor_msgs/Image",
			first: imageOf(t, 4, 6, 3, false),
			live:  imageOf(t, 6, 4, 3, false),
			want:  []string{"rgb8, 6×4", "rgb8, 4×6"},
		},
		{
			name:  "another length",
			typ:   "std_msgs/Float64MultiArray",
			first: arrayOf(7),
			live:  arrayOf(6),
			want:  []string{"expected 7 elements, found 6"},
		},
		{
			name:  "other fields",
			typ:   "sensor_msgs/PointCloud2",
			first: cloudOf(t, "intensity"),
			live:  cloudOf(t, "ring"),
			want:  []string{"float32 intensity", "float32 ring"},
		},
		{
			name:  "another type",
			typ:   "sensor_msgs/Imu",
			first: EncodeImu(nil, Header{1, "imu"}, &Imu{}),
			live:  arrayOf(7),
			want:  []string{"a message of type sensor_msgs/msg/Imu", "bytes that end inside"},
		},
		{
			name:  "a longer type",
			typ:   "geometry_msgs/Vector3",
			first: make([]byte, 28),
			live:  make([]byte, 60),
			want:  []string{"a message of type geometry_msgs/msg/Vector3", "60 bytes, 32 behind"},
		},
	} {
		s, ok := KnownSchema(c.typ)
		if !ok {
			t.Fatal(c.typ)
		}
		if c.typ == "geometry_msgs/Vector3" {
			c.first[1], c.live[1] = 1, 1 // little-endian
		}
		top, err := NewTopic("/t", s, [][]byte{c.first})
		if err != nil {
			t.Fatal(err)
		}
		live := restoredFrom(t, top)
		err = live.CheckSize(c.live)
		if err == nil {
			err = live.Scan(c.live, func(int, int, int64, bool) {})
		}
		f := &live.Fields()[0].Feature
		switch {
		case err != nil:
		case f.Kind == robocache.KindImage:
			_, err = live.Image(c.live, 0, 0)
		case f.Ragged():
			_, _, err = live.Ragged(c.live, 0, 0, nil)
		default:
			var ok bool
			ok, err = live.Numeric(c.live, 0, 0, make([]byte, f.RowBytes()))
			if err == nil && !ok {
				err = live.ExplainMissing(c.live, 0)
			}
		}
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", c.name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %s", c.name, err, w)
			}
		}
	}
}

// TestStillDoesNotFit checks images in files, whose size is in their own header.
func TestStillDoesNotFit(t *testing.T) {
	s, _ := KnownSchema("sensor_msgs/CompressedImage")
	still := func(w, h byte, colour bool) []byte {
		// A JPEG up to its frame header.
		components := byte(1)
		if colour {
			components = 3
		}
		data := []byte{
			0xff,
			0xd8,
			0xff,
			0xc0,
			0,
			17,
			8,
			0,
			h,
			0,
			w,
			components,
			1,
			0x11,
			0,
			2,
			0,
			0,
		}
		return EncodeCompressedImage(nil, Header{}, "jpeg", append(data, make([]byte, 64)...))
	}
	top, err := NewTopic("/c", s, [][]byte{still(32, 24, true)})
	if err != nil {
		t.Fatal(err)
	}
	live := restoredFrom(t, top)
	if _, err := live.Image(still(32, 24, true), 0, 0); err != nil {
		t.Error(err)
	}
	for want, msg := range map[string][]byte{
		"found images, 24×32×3 of uint8": still(24, 32, true),
		"found images, 32×24×1 of uint8": still(32, 24, false),
	} {
		if _, err := live.Image(msg, 0, 0); !errors.Is(err, robocache.ErrMalformed) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// A recording with images of several sizes has them live too.
	if err := top.Scan(still(8, 8, true), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := restoredFrom(t, top).Image(still(9, 9, true), 0, 0); err != nil {
		t.Error(err)
	}
}

// TestDamagedLayout checks that a layout that no recording has is an error.
func TestDamagedLayout(t *testing.T) {
	for name, layouts := range map[string][]string{
		"sensor_msgs/JointState": {
			``, `{}`, `{"learned":{"groups":[null],"fields":[]}}`,
			`{"learned":{"groups":[{"names":"AQAAAAIAAABhAA==","width":2}],"fields":[]}}`,
			`{"learned":{"groups":[{"names":"/////w==","width":2}],"fields":[]}}`,
			`{"learned":{"groups":[],"fields":[{"group":0,"part":0}]}}`,
			`{"learned":{"groups":[{"names":"AAAAAA==","width":1000000000000}],"fields":[` +
				`{"group":0,"part":0}]}}`,
			`{"learned":{"groups":[],"fields":[]},"unknown":1}`,
			`{"learned":{"groups":[],"fields":[]},"feature":{"key":"x"}}`,
		},
		"sensor_msgs/Image":             {`{"learned":{"encoding":"x"}}`},
		"sensor_msgs/PointCloud2":       {`{"learned":{"fields":"/////w=="}}`},
		"std_msgs/Float64MultiArray":    {`{"learned":{"shape":[-1,-3],"length":3}}`},
		"rcl_interfaces/ParameterEvent": {`{"learned":{"lengths":[1]}}`},
		"std_msgs/String":               {`{"feature":{"key":"x","kind":"numeric","dtype":"int8"}}`},
		"geometry_msgs/Vector3": {
			`{"learned":{}}`,
			`{"feature":{"key":"x","kind":"numeric","dtype":"float64","shape":[4]}}`,
		},
	} {
		s, ok := KnownSchema(name)
		if !ok {
			t.Fatal(name)
		}
		for _, l := range layouts {
			var e *robocache.Error
			if _, err := RestoreTopic("/t", s, json.RawMessage(l)); !errors.As(err, &e) {
				t.Errorf("%s with %s: %v, want an error", name, l, err)
			}
		}
	}
}
