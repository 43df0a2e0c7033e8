package message_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	images "image"
	pngs "image/png"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/live/internal/message"
	"github.com/goatnote-inc/robocache/live/transport"
)

// sourcesIn returns the sources of all streams of a recording of some messages.
func sourcesIn(t *testing.T, list []recorded, options map[string]string) []message.KeyedSource {
	t.Helper()
	ds, err := robocache.Open(
		t.Context(), writeRecording(t, list), robocache.OpenOptions{Options: options})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	return sourcesOf(t, ds)
}

// decoderOf returns the decoder of a recording of some messages.
func decoderOf(t *testing.T, list ...recorded) *message.Decoder {
	t.Helper()
	dec, err := message.New(sourcesIn(t, list, nil))
	if err != nil {
		t.Fatal(err)
	}
	return dec
}

// decodeOne returns the rows of a message as texts.
func decodeOne(dec *message.Decoder, m recorded) (rows []string, err error) {
	err = dec.Decode(m.topic, m.data, m.log, func(r message.Row) {
		rows = append(rows, fmt.Sprintf("%s %d %v", r.Key, r.Time-epoch, r.Valid))
	})
	return rows, err
}

func joints(at int64, names []string, position, velocity []float64) recorded {
	return recorded{
		topic: "/joint_states",
		typ:   "sensor_msgs/msg/JointState",
		log:   epoch + at,
		data:  jointState(epoch+at-1, names, position, velocity),
	}
}

// TestStreamsThatFitAreEmitted checks that a message without velocities is an error of their stream
// only, which names topic and stream (message.M2).
func TestStreamsThatFitAreEmitted(t *testing.T) {
	two := []string{"arm", "wrist"}
	dec := decoderOf(t, joints(10, two, []float64{1, 2}, []float64{3, 4}))
	rows, err := decodeOne(dec, joints(20, two, []float64{5, 6}, nil))
	if got := strings.Join(rows, ", "); got != "joint_states.position 19 true" {
		t.Errorf("rows %s", got)
	}
	if !errors.Is(err, robocache.ErrMalformed) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/joint_states", "stream joint_states.velocity", `expected values of ["arm","wrist"]`,
		"found arm, wrist; 2 of position; 0 of velocity",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// A recording in which some messages lack velocities has rows without a value.
	dec = decoderOf(t, joints(10, two, []float64{1, 2}, []float64{3, 4}),
		joints(20, two, []float64{1, 2}, nil))
	rows, err = decodeOne(dec, joints(30, two, []float64{5, 6}, nil))
	if got := strings.Join(rows, ", "); err != nil ||
		got != "joint_states.position 29 true, joint_states.velocity 29 false" {
		t.Errorf("rows %s, %v", got, err)
	}
}

// TestOtherTopics checks messages and channels that are not those of the recording (message.M2).
func TestOtherTopics(t *testing.T) {
	first := joints(10, []string{"arm"}, []float64{1}, nil)
	dec := decoderOf(t, first)
	if _, err := decodeOne(dec, recorded{topic: "/other"}); !errors.Is(err,
		robocache.ErrNotFound) || !strings.Contains(err.Error(), "/other") {
		t.Error(err)
	}
	imu := recorded{topic: first.topic, data: make([]byte, 333)}
	imu.data[1] = 1
	if _, err := decodeOne(dec, imu); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "sensor_msgs/msg/JointState") {
		t.Error(err)
	}
	text, _ := ros2.SchemaText(first.typ)
	channel := transport.Channel{
		Topic:          first.topic,
		Type:           first.typ,
		Encoding:       "cdr",
		SchemaEncoding: "ros2msg",
		Schema:         text,
	}
	for name, c := range map[string]struct {
		change func(c *transport.Channel)
		class  error
		want   string
	}{
		"the same": {func(*transport.Channel) {}, nil, ""},
		"no definition": {func(c *transport.Channel) {
			c.SchemaEncoding, c.Schema = "", ""
		}, nil, ""},
		"another topic": {func(c *transport.Channel) { c.Topic = "/x" }, robocache.ErrNotFound, "/x"},
		"another encoding": {func(c *transport.Channel) {
			c.Encoding = "json"
		}, robocache.ErrUnsupported, "json"},
		"another type": {func(c *transport.Channel) {
			c.Type, c.SchemaEncoding, c.Schema = "sensor_msgs/msg/Imu", "", ""
		}, robocache.ErrMalformed, "sensor_msgs/msg/Imu"},
		"an unknown type": {func(c *transport.Channel) {
			c.Type, c.SchemaEncoding, c.Schema = "own_msgs/msg/Own", "", ""
		}, robocache.ErrMalformed, "own_msgs/msg/Own"},
		"another definition": {func(c *transport.Channel) {
			c.Schema = strings.Replace(text, "float64[] effort", "float32[] effort", 1)
		}, robocache.ErrMalformed, "another definition"},
		"a damaged definition": {func(c *transport.Channel) {
			c.Schema = "x"
		}, robocache.ErrMalformed, "/joint_states"},
	} {
		changed := channel
		c.change(&changed)
		err := dec.CheckChannel(&changed)
		if !errors.Is(err, c.class) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %v with %s", name, err, c.class, c.want)
		}
	}
}

// TestSourcesThatCannotBeDecoded checks the errors of New.
func TestSourcesThatCannotBeDecoded(t *testing.T) {
	list := []recorded{joints(10, []string{"arm"}, []float64{1}, []float64{2})}
	for name, c := range map[string]struct {
		change func(s []message.KeyedSource)
		want   string
	}{
		"no message": {func(s []message.KeyedSource) { s[0].Source = nil }, "comes from no message"},
		"a clock that is not known": {func(s []message.KeyedSource) {
			s[0].Source.Clock = "publish"
		}, "header or log"},
		"two recordings": {func(s []message.KeyedSource) {
			s[0].Source.Clock = "log"
		}, "different recordings"},
		"another field": {func(s []message.KeyedSource) {
			s[0].Source.Field = ".torque"
		}, `one of ".position", ".velocity"`},
		"another encoding": {func(s []message.KeyedSource) {
			s[0].Source.Encoding = "json"
		}, "json"},
		"no definition": {func(s []message.KeyedSource) {
			s[0].Source.Type = "own_msgs/msg/Own"
		}, "own_msgs/msg/Own"},
		"a damaged layout": {func(s []message.KeyedSource) {
			s[0].Source.Layout = json.RawMessage("{")
		}, "layout"},
		"a mapping of other fields": {func(s []message.KeyedSource) {
			s[0].Source.Mapping = &robocache.StreamMapping{From: []string{".torque"}}
		}, ".torque"},
	} {
		sources := sourcesIn(t, list, nil)
		c.change(sources)
		_, err := message.New(sources)
		hostile.Typed(t, err)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestFiniteOnly checks that rows with NaN or infinity have no value if the source says so.
func TestFiniteOnly(t *testing.T) {
	list := []recorded{joints(10, []string{"arm", "wrist"}, []float64{1, 2}, nil)}
	sources := sourcesIn(t, list, nil)
	sources[0].Source.FiniteOnly = true
	dec, err := message.New(sources)
	if err != nil {
		t.Fatal(err)
	}
	for value, valid := range map[float64]bool{3: true, math.Inf(1): false, math.NaN(): false} {
		m := joints(20, []string{"arm", "wrist"}, []float64{1, value}, nil)
		calls := 0
		if err := dec.Decode(m.topic, m.data, m.log, func(r message.Row) {
			calls++
			zeros := string(r.Data) == string(make([]byte, 16))
			if r.Valid != valid || zeros == valid {
				t.Errorf("%v: valid %v, data %x", value, r.Valid, r.Data)
			}
		}); err != nil || calls != 1 {
			t.Errorf("%d rows, %v", calls, err)
		}
	}
}

// transformsOf returns a TFMessage of n transforms from world to base.
func transformsOf(at int64, n int) recorded {
	c := newMessage()
	c.u32(n)
	for k := range n {
		c.u32(int((epoch + at) / 1e9))
		c.u32(int((epoch + at) % 1e9))
		c.text("world")
		c.text("base")
		c.align(8)
		c = append(c, make([]byte, 56)...)
		c[len(c)-1] = byte(k)
	}
	return recorded{topic: "/tf", typ: "tf2_msgs/msg/TFMessage", log: epoch + at, data: c}
}

// TestRowsOfMessageAreLimited checks message.M3: time and memory for a message are limited.
func TestRowsOfMessageAreLimited(t *testing.T) {
	dec := decoderOf(t, transformsOf(1, 2))
	if rows, err := decodeOne(dec, transformsOf(2, 4096)); err != nil || len(rows) != 2*4096 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	rows, err := decodeOne(dec, transformsOf(3, 4097))
	if !errors.Is(err, robocache.ErrResourceLimit) || len(rows) > 0 {
		t.Errorf("%d rows, %v, want ErrResourceLimit", len(rows), err)
	}
}

// TestDecoderAllocatesNothing checks message.M4.
func TestDecoderAllocatesNothing(t *testing.T) {
	imu := newMessage()
	imu.header(epoch + 10)
	imu.align(8)
	imu = append(imu, make([]byte, 37*8)...)
	array, err := ros2.EncodeMultiArray(nil, robocache.Float32, []int{7}, nil, make([]byte, 28))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"arm", "elbow", "wrist"}
	turned := joints(20, []string{"wrist", "arm", "elbow"}, []float64{1, 2, 3}, nil)
	own := recorded{
		topic:  "/own",
		typ:    "own_msgs/msg/Own",
		schema: "std_msgs/Header header\nfloat32[3] q\nbool on\nfloat64[] list\n",
		log:    epoch,
	}
	generic := newMessage()
	generic.header(epoch)
	generic.align(4)
	generic = append(generic, make([]byte, 13)...)
	generic.floats([]float64{1, 2})
	own.data = generic
	for name, list := range map[string][]recorded{
		"joints":               {joints(10, names, []float64{1, 2, 3}, []float64{4, 5, 6})},
		"joints in turn":       {joints(10, names, []float64{1, 2, 3}, nil), turned},
		"inertial samples":     {{topic: "/imu", typ: "sensor_msgs/msg/Imu", log: epoch, data: imu}},
		"arrays":               {{topic: "/a", typ: "std_msgs/msg/Float32MultiArray", log: epoch, data: array}},
		"transforms":           {transformsOf(1, 3)},
		"a type of the user's": {own},
	} {
		sources := slices.DeleteFunc(sourcesIn(t, list, nil), func(s message.KeyedSource) bool {
			return s.Source.Field == ".header.frame_id" // a text is allocated
		})
		for i := range sources {
			s := sources[i].Source
			if s.Field == ".list" {
				continue // an array of any length cannot be sliced
			}
			mapped := *s
			mapped.Mapping = &robocache.StreamMapping{
				From: []string{s.Field}, Offset: 5, Slice: []int{0, 1},
			}
			sources = append(sources, message.KeyedSource{
				Key: sources[i].Key + " mapped", Source: &mapped,
			})
		}
		dec, err := message.New(sources)
		if err != nil {
			t.Fatal(err)
		}
		m, rows := list[len(list)-1], 0
		emit := func(r message.Row) {
			if r.Valid && len(r.Data) > 0 {
				rows++
			}
		}
		allocs := testing.AllocsPerRun(100, func() {
			if err := dec.Decode(m.topic, m.data, m.log, emit); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 || rows < 101*len(sources) {
			t.Errorf("%s: %v allocations a message, %d rows", name, allocs, rows)
		}
	}
}

// TestDecodeConcurrently checks message.M5.
func TestDecodeConcurrently(t *testing.T) {
	a, b := joints(10, []string{"arm", "wrist"}, []float64{1, 2}, nil), transformsOf(1, 2)
	dec := decoderOf(t, a, b)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 200 {
				for _, m := range []recorded{a, b} {
					if rows, err := decodeOne(dec, m); err != nil || len(rows) == 0 {
						t.Error(rows, err)
					}
				}
			}
		})
	}
	wait.Wait()
}

// topicOfEachKind returns a message of a topic of each kind.
func topicOfEachKind(tb testing.TB) []recorded {
	tb.Helper()
	h := ros2.Header{Timestamp: epoch, FrameID: "f"}
	raw := &robocache.Raw{
		Pix: make([]byte, 16*12*3), Height: 12, Width: 16, Channels: 3, DType: robocache.Uint8,
	}
	image, err := ros2.EncodeImage(nil, h, raw)
	if err != nil {
		tb.Fatal(err)
	}
	cloud, err := ros2.EncodePointCloud2(nil, h, []ros2.PointField{
		{Name: "x", DType: robocache.Float32, Count: 1},
		{Name: "y", Offset: 4, DType: robocache.Float32, Count: 1},
		{Name: "z", Offset: 8, DType: robocache.Float32, Count: 1},
		{Name: "ring", Offset: 12, DType: robocache.Uint16, Count: 1},
	}, 0, make([]byte, 28))
	if err != nil {
		tb.Fatal(err)
	}
	array, err := ros2.EncodeMultiArray(nil, robocache.Float64, []int{2}, nil, make([]byte, 16))
	if err != nil {
		tb.Fatal(err)
	}
	var png bytes.Buffer
	if err := pngs.Encode(&png, images.NewGray16(images.Rect(0, 0, 5, 4))); err != nil {
		tb.Fatal(err)
	}
	depth := append(make([]byte, 12), png.Bytes()...)
	out := []recorded{
		joints(0, []string{"a", "b"}, []float64{1, 2}, []float64{3, 4}),
		transformsOf(0, 2),
		{topic: "/image", typ: "sensor_msgs/msg/Image", data: image},
		{topic: "/cloud", typ: "sensor_msgs/msg/PointCloud2", data: cloud},
		{topic: "/array", typ: "std_msgs/msg/Float64MultiArray", data: array},
		{topic: "/text", typ: "std_msgs/msg/String", data: ros2.EncodeString(nil, "text")},
		{
			topic: "/png",
			typ:   "sensor_msgs/msg/CompressedImage",
			data:  ros2.EncodeCompressedImage(nil, h, "png", png.Bytes()),
		},
		{
			topic: "/depth",
			typ:   "sensor_msgs/msg/CompressedImage",
			data:  ros2.EncodeCompressedImage(nil, h, "32FC1; compressedDepth", depth),
		},
		{
			topic:  "/own",
			typ:    "own_msgs/msg/Own",
			schema: "string[] names\nfloat64[3] q\nuint8[] list\nstd_msgs/String[] more\n",
			data:   append(newMessage(), make([]byte, 40)...),
		},
	}
	for _, name := range []string{"h264", "av1", "vp9"} {
		m := recorded{topic: "/" + name, typ: "foxglove_msgs/msg/CompressedVideo"}
		m.data = ros2.EncodeCompressedVideo(nil, h, name, smallVideo(tb, name)[0])
		out = append(out, m)
	}
	for i := range out {
		out[i].log = epoch + int64(i)
	}
	return out
}

// FuzzDecode decodes any bytes as messages of each kind of topic: no panic, typed errors, and
// memory in proportion to the message (message.M2, message.M3).
func FuzzDecode(f *testing.F) {
	list := topicOfEachKind(f)
	for i, m := range list {
		f.Add(uint8(i), m.data)
	}
	path := writeRecording(f, list)
	ds, err := robocache.Open(f.Context(), path, robocache.OpenOptions{})
	if err != nil {
		f.Fatal(err)
	}
	defer ds.Close()
	var sources []message.KeyedSource
	for _, x := range ds.Info().Features {
		sources = append(sources, message.KeyedSource{
			Key: x.Key, Source: robocache.MessageOf(ds, x.Key),
		})
	}
	f.Fuzz(func(t *testing.T, topic uint8, payload []byte) {
		dec, err := message.New(sources)
		if err != nil {
			t.Fatal(err)
		}
		before := hostile.Allocated()
		bytes := 0
		err = dec.Decode(list[int(topic)%len(list)].topic, payload, 5, func(r message.Row) {
			bytes += len(r.Data) + len(r.Text)
		})
		hostile.Typed(t, err)
		if got := hostile.Allocated() - before; got > uint64(8<<20+4000*len(payload)) {
			t.Errorf("%d bytes were allocated for %d", got, len(payload))
		}
	})
}

// FuzzLayout decodes a message with any layout in place of the recording's (message.M2).
func FuzzLayout(f *testing.F) {
	list := topicOfEachKind(f)
	ds, err := robocache.Open(f.Context(), writeRecording(f, list), robocache.OpenOptions{})
	if err != nil {
		f.Fatal(err)
	}
	defer ds.Close()
	sources := map[string]message.KeyedSource{}
	for _, x := range ds.Info().Features {
		source := robocache.MessageOf(ds, x.Key)
		sources[source.Topic] = message.KeyedSource{Key: x.Key, Source: source}
	}
	for i, m := range list {
		f.Add(uint8(i), string(sources[m.topic].Source.Layout), m.data)
	}
	f.Fuzz(func(t *testing.T, topic uint8, layout string, payload []byte) {
		m := list[int(topic)%len(list)]
		source := *sources[m.topic].Source
		source.Layout = json.RawMessage(layout)
		dec, err := message.New([]message.KeyedSource{{Key: "x", Source: &source}})
		hostile.Typed(t, err)
		if err == nil {
			hostile.Typed(t, dec.Decode(m.topic, payload, 5, func(message.Row) {}))
		}
	})
}

// TestVideoDoesNotFit checks packets of another codec or size than the recording's.
func TestVideoDoesNotFit(t *testing.T) {
	list := videoMessages(t, "h264")
	sources := sourcesIn(t, list, nil)
	dec, err := message.New(sources)
	if err != nil {
		t.Fatal(err)
	}
	other := videoMessages(t, "hevc")[0]
	if _, err := decodeOne(dec, other); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "video of h264, 48×34") ||
		!strings.Contains(err.Error(), "video of hevc") {
		t.Error(err)
	}
	for i := range sources {
		s := sources[i].Source
		s.Layout = json.RawMessage(strings.Replace(string(s.Layout), "34", "36", 1))
	}
	if dec, err = message.New(sources); err != nil {
		t.Fatal(err)
	}
	var failed error
	for _, m := range list {
		_, err := decodeOne(dec, m)
		failed = cmp.Or(failed, err)
	}
	if !errors.Is(failed, robocache.ErrMalformed) ||
		!strings.Contains(failed.Error(), "48×36") || !strings.Contains(failed.Error(), "48×34") {
		t.Error(failed)
	}
}
