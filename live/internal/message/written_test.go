package message_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

const epoch = int64(1_770_000_000_000_000_000)

// recorded is a message of a recording that a test writes.
type recorded struct {
	topic, typ, schema string
	log                int64
	data               []byte
	latched            bool
}

// writeRecording writes an MCAP file with a library that shares no code with the reader.
func writeRecording(t testing.TB, list []recorded) (path string) {
	t.Helper()
	return writeWithNote(t, list, "")
}

// writeWithNote is writeRecording with a description of the dataset that was written.
func writeWithNote(t testing.TB, list []recorded, note string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "recording.mcap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := foxglove.NewWriter(file, &foxglove.WriterOptions{Chunked: true})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.WriteHeader(&foxglove.Header{Profile: "ros2"}))
	if note != "" {
		must(w.WriteMetadata(&foxglove.Metadata{
			Name: "robocache", Metadata: map[string]string{"dataset": note},
		}))
	}
	ids := map[string]uint16{}
	for _, m := range list {
		id, ok := ids[m.topic]
		if !ok {
			id = uint16(len(ids) + 1)
			ids[m.topic] = id
			text := m.schema
			if text == "" {
				text, _ = ros2.SchemaText(m.typ)
			}
			must(w.WriteSchema(&foxglove.Schema{
				ID: id, Name: m.typ, Encoding: "ros2msg", Data: []byte(text),
			}))
			metadata := map[string]string{}
			if m.latched {
				metadata["offered_qos_profiles"] = "- durability: transient_local"
			}
			must(w.WriteChannel(&foxglove.Channel{
				ID: id, SchemaID: id, Topic: m.topic, MessageEncoding: "cdr", Metadata: metadata,
			}))
		}
		must(w.WriteMessage(&foxglove.Message{
			ChannelID: id, LogTime: uint64(m.log), PublishTime: uint64(m.log), Data: m.data,
		}))
	}
	must(w.Close())
	return path
}

// pythonLines runs a script of package ros2 that prints messages, one JSON object a line.
func pythonLines(t *testing.T, script string, args ...string) *bufio.Scanner {
	t.Helper()
	folder := filepath.Join(realdata.Root(t), "format", "ros2", "testdata")
	cmd := exec.Command(realdata.Python(t, "rosbags", "cv2", "PIL"),
		append([]string{filepath.Join(folder, script)}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	return lines
}

// cdr is a message under construction.
type cdr []byte

func newMessage() cdr { return cdr{0, 1, 0, 0} }

func (c *cdr) align(n int) {
	for (len(*c)-4)%n != 0 {
		*c = append(*c, 0)
	}
}

func (c *cdr) u32(v int) {
	c.align(4)
	*c = binary.LittleEndian.AppendUint32(*c, uint32(v))
}

func (c *cdr) text(s string) {
	c.u32(len(s) + 1)
	*c = append(append(*c, s...), 0)
}

func (c *cdr) header(at int64) {
	c.u32(int(at / 1e9))
	c.u32(int(at % 1e9))
	c.text("frame")
}

func (c *cdr) floats(list []float64) {
	if c.u32(len(list)); len(list) > 0 {
		c.align(8)
	}
	for _, v := range list {
		*c = binary.LittleEndian.AppendUint64(*c, math.Float64bits(v))
	}
}

func jointState(at int64, names []string, position, velocity []float64) []byte {
	c := newMessage()
	c.header(at)
	c.u32(len(names))
	for _, name := range names {
		c.text(name)
	}
	for _, list := range [][]float64{position, velocity, nil} {
		c.floats(list)
	}
	return c
}

// TestHardCases compares the hard cases of each type: joints in another order and missing ones,
// every encoding of images, clouds of any layout, depth, transforms with several clocks, and both
// byte orders. The stamps of the messages are those of the script, so the log times are near them.
func TestHardCases(t *testing.T) {
	lines := pythonLines(t, "special.py")
	var list []recorded
	for lines.Scan() {
		var c struct {
			Case, Type string
			Data       []string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		topic := "/" + strings.NewReplacer(" ", "_", ",", "", "-", "_").Replace(c.Case)
		for k, text := range c.Data {
			data, _ := hex.DecodeString(text)
			list = append(list, recorded{
				topic: topic,
				typ:   c.Type,
				log:   1_700_000_000_000_000_000 + int64(k)*1_000_000_000 + 3_000_000,
				data:  data,
			})
		}
	}
	counts := compared{}
	compareAll(t, writeRecording(t, list), nil, counts)
	t.Log(counts)
}

// TestEveryType compares random messages of every type that rosbags knows.
func TestEveryType(t *testing.T) {
	lines := pythonLines(t, "messages.py", "4")
	var list []recorded
	schema := map[string]string{}
	for lines.Scan() {
		var m struct{ Type, Schema, Data string }
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if m.Schema != "" {
			schema[m.Type] = m.Schema
		}
		data, _ := hex.DecodeString(m.Data)
		list = append(list, recorded{
			topic:  "/" + m.Type,
			typ:    m.Type,
			schema: schema[m.Type],
			log:    epoch + int64(len(list))*1_000_000,
			data:   data,
		})
	}
	counts := compared{}
	ds, err := robocache.Open(t.Context(), writeRecording(t, list), robocache.OpenOptions{
		Options: map[string]string{"clock": "log"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	// Random bytes are no image and no cloud.
	for topic, err := range compareReadable(t, ds, counts) {
		if !strings.Contains(topic, "Image") && !strings.Contains(topic, "PointCloud2") {
			t.Error(err)
		}
	}
	t.Log(counts)
	if counts[robocache.KindNumeric] < 1000 || counts[robocache.KindText] < 100 {
		t.Errorf("only %v", counts)
	}
}

// TestChannelOrder compares raw images whose encoding does not state the order of their channels,
// and images whose stated order is overridden.
func TestChannelOrder(t *testing.T) {
	var list []recorded
	for k := range int64(3) {
		raw := &robocache.Raw{
			Pix: make([]byte, 4*6*3), Height: 4, Width: 6, Channels: 3, DType: robocache.Uint8,
		}
		for i := range raw.Pix {
			raw.Pix[i] = byte(i * int(k+1))
		}
		at := epoch + k*100_000_000
		data, err := ros2.EncodeImage(nil, ros2.Header{Timestamp: at}, raw)
		if err != nil {
			t.Fatal(err)
		}
		unstated := bytes.Replace(data, []byte("rgb8"), []byte("8UC3"), 1)
		list = append(list,
			recorded{topic: "/stated", typ: "sensor_msgs/msg/Image", log: at, data: data},
			recorded{topic: "/unstated", typ: "sensor_msgs/msg/Image", log: at, data: unstated})
	}
	path := writeRecording(t, list)
	for _, order := range []string{"rgb", "bgr", "stated=bgr,unstated=bgr"} {
		compareAll(t, path, map[string]string{"channel_order": order}, compared{})
	}
}

// TestJointsOfSeveralNodes compares an arm and its gripper on one topic, with joints in another
// order, missing joints, and parts that begin later. A latched topic holds the values of missing
// joints.
func TestJointsOfSeveralNodes(t *testing.T) {
	var list []recorded
	random := rand.New(rand.NewPCG(1, 2))
	for k := range int64(200) {
		names := []string{"arm", "elbow", "wrist"}
		switch k % 5 {
		case 1:
			names = []string{"wrist", "arm", "elbow"}
		case 2:
			names = []string{"gripper"}
		case 3:
			names = []string{"elbow", "arm"}
		case 4:
			names = []string{"arm", "stranger", "wrist", "elbow"}
		}
		values := make([]float64, len(names))
		for i := range values {
			values[i] = random.NormFloat64()
		}
		var speeds []float64
		if k > 50 {
			speeds = values
		}
		at := epoch + k*10_000_000
		m := recorded{
			topic: "/joint_states",
			typ:   "sensor_msgs/msg/JointState",
			log:   at + 1_000_000,
			data:  jointState(at, names, values, speeds),
		}
		list = append(list, m)
		if len(names) > 1 {
			m.topic, m.latched = "/latched_joints", true
			m.data = jointState(at, names, values, values)
			list = append(list, m)
		}
	}
	counts := compared{}
	compareAll(t, writeRecording(t, list), nil, counts)
	if counts[robocache.KindNumeric] < 1000 {
		t.Errorf("only %v", counts)
	}
}

// TestJointsOfSeveralRecordings compares recordings in which the nodes of a topic begin in
// different orders: their joints belong to the same streams in all of them.
func TestJointsOfSeveralRecordings(t *testing.T) {
	folder := t.TempDir()
	for i, nodes := range [][]string{{"arm", "gripper"}, {"arm", "base", "gripper"}} {
		var list []recorded
		for k := range 60 {
			node := nodes[0]
			if k > 20 {
				node = nodes[k%len(nodes)]
			}
			list = append(list, joints(int64(k)*1000, []string{node}, []float64{float64(k)}, nil))
		}
		name := filepath.Join(folder, fmt.Sprintf("%d.mcap", i))
		if err := os.Rename(writeRecording(t, list), name); err != nil {
			t.Fatal(err)
		}
	}
	counts := compared{}
	compareAll(t, folder, map[string]string{"scan": "all"}, counts)
	if counts[robocache.KindNumeric] == 0 {
		t.Error("no row was compared")
	}
}

// smallVideo returns the packets of a small video. The first and the fourth are key frames.
func smallVideo(t testing.TB, name string) (packets [][]byte) {
	t.Helper()
	b, err := os.ReadFile(
		filepath.Join(realdata.Root(t), "video", "testdata", "packets", "small."+name))
	if err != nil {
		t.Fatal(err)
	}
	delimiter := map[string]string{"h264": "\x00\x00\x00\x01\x09", "hevc": "\x00\x00\x00\x01F"}
	for len(b) > 2 {
		from, n := 2, int(binary.LittleEndian.Uint16(b))
		if mark := delimiter[name]; mark != "" {
			if from, n = 0, bytes.Index(b[1:], []byte(mark))+1; n == 0 {
				n = len(b)
			}
		}
		packets, b = append(packets, b[from:from+n]), b[from+n:]
	}
	return packets
}

// videoMessages returns messages of a camera that begin behind a key frame and lack a packet.
func videoMessages(t testing.TB, name string) (list []recorded) {
	t.Helper()
	packets := smallVideo(t, name)
	format := strings.ReplaceAll(name, "hevc", "h265")
	for k := range int64(30) {
		at := epoch + k*33_000_000
		h := ros2.Header{Timestamp: at, FrameID: "camera"}
		data := packets[(k+1)%6]
		switch k {
		case 7:
			continue
		case 11:
			data = nil
		}
		list = append(list, recorded{
			topic: "/video",
			typ:   "foxglove_msgs/msg/CompressedVideo",
			log:   at + 5_000_000,
			data:  ros2.EncodeCompressedVideo(nil, h, format, data),
		})
		if name == "h264" || name == "hevc" {
			list = append(list, recorded{
				topic: "/image",
				typ:   "sensor_msgs/msg/CompressedImage",
				log:   at + 5_000_000,
				data:  ros2.EncodeCompressedImage(nil, h, format, data),
			})
		}
	}
	return list
}

// TestVideoPackets compares video of each codec.
func TestVideoPackets(t *testing.T) {
	for _, name := range []string{"h264", "hevc", "av1", "vp9"} {
		counts := compared{}
		path := writeRecording(t, videoMessages(t, name))
		t.Run(name, func(t *testing.T) { compareAll(t, path, nil, counts) })
		if counts[robocache.KindVideo] == 0 {
			t.Errorf("%s: no video", name)
		}
	}
}

// TestVideoOfDataset compares video that was copied from a file with color properties outside its
// packets.
func TestVideoOfDataset(t *testing.T) {
	note := `{"format": "lerobot", "streams": [{
		"topic": "/video",
		"feature": {"key": "camera", "kind": "video", "dtype": "uint8", "shape": [34, 48, 3]},
		"colour": {"primaries": 1, "transfer": 13, "matrix": 1, "full_range": true}
	}]}`
	path := writeWithNote(t, videoMessages(t, "h264"), note)
	counts := compared{}
	compareAll(t, path, nil, counts)
	if counts[robocache.KindVideo] == 0 {
		t.Error("no video")
	}
}

// TestWrittenDatasets compares datasets that were written as recordings, whose streams have the
// features of the original dataset.
func TestWrittenDatasets(t *testing.T) {
	for _, codec := range []string{"png", "jpeg", "raw"} {
		src, err := synth.New(synth.Options{
			Episodes: 2,
			Seconds:  1,
			Width:    64,
			Height:   64,
			Cameras:  2,
			Codec:    codec,
			Depth:    true,
			Points:   40,
			Rates: map[string]float64{
				"camera": 10, "joints": 50, "force": 333, "cloud": 5, "text": 2,
			},
			Jitter:  time.Millisecond,
			Dropout: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		counts := compared{}
		t.Run(codec, func(t *testing.T) { compareAll(t, write(t, src), nil, counts) })
		t.Log(counts)
	}
	counts := compared{}
	t.Run("types", func(t *testing.T) { compareAll(t, write(t, newTypes(t)), nil, counts) })
	t.Log(counts)
}

// write writes a dataset as recordings.
func write(t *testing.T, ds robocache.Dataset) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "written")
	if _, err := mcap.Write(t.Context(), ds, folder, robocache.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return folder
}

// typed is a dataset with a stream of every dtype, of one number, of a matrix, and ragged.
type typed struct {
	robocache.Dataset
	info    robocache.Info
	offered robocache.Capabilities
}

func newTypes(t *testing.T) *typed {
	t.Helper()
	base, err := synth.New(synth.Options{Episodes: 2, Seconds: 1, Width: 64, Height: 64})
	if err != nil {
		t.Fatal(err)
	}
	d := &typed{Dataset: base, info: *base.Info()}
	d.info.Features = nil
	for dtype := robocache.Bool; dtype <= robocache.Float64; dtype++ {
		for i, shape := range [][]int{{1}, {2, 3}, {-1}, {-1, 3}} {
			d.info.Features = append(d.info.Features, robocache.Feature{
				Key:    fmt.Sprintf("%s.%d", dtype, i),
				Kind:   robocache.KindNumeric,
				DType:  dtype,
				Shape:  shape,
				Clock:  base.Info().Clock,
				Masked: i == 1,
			})
		}
	}
	d.offered = robocache.Capabilities{GatherRagged: d.GatherRagged, Valid: d.Valid}
	return d
}

func (d *typed) Info() *robocache.Info                 { return &d.info }
func (d *typed) Capabilities() *robocache.Capabilities { return &d.offered }

func (d *typed) Times(ctx context.Context, e int, _ string) ([]int64, error) {
	return d.Dataset.Times(ctx, e, "")
}

// value returns n random bytes of a row, or bits if the stream is bool.
func value(f *robocache.Feature, r robocache.Row, n int) []byte {
	g := rand.New(rand.NewPCG(uint64(f.DType)*1000+uint64(r.Index), uint64(r.Episode)))
	b := make([]byte, n)
	for i := range b {
		if b[i] = byte(g.Uint32()); f.DType == robocache.Bool {
			b[i] &= 1
		}
	}
	return b
}

func (d *typed) Gather(
	_ context.Context, key string, rows []robocache.Row, dst []byte,
) error {
	f := d.info.Feature(key)
	for i, r := range rows {
		row := dst[i*f.RowBytes() : (i+1)*f.RowBytes()]
		if clear(row); !f.Masked || r.Index%4 != 2 {
			copy(row, value(f, r, f.RowBytes()))
		}
	}
	return nil
}

func (d *typed) Valid(
	_ context.Context, key string, rows []robocache.Row, valid []uint8,
) error {
	for i, r := range rows {
		if valid[i] = 1; d.info.Feature(key).Masked && r.Index%4 == 2 {
			valid[i] = 0
		}
	}
	return nil
}

func (d *typed) GatherRagged(
	_ context.Context, key string, rows []robocache.Row,
) (data []byte, counts []int, err error) {
	f := d.info.Feature(key)
	for _, r := range rows {
		n := r.Index % 5
		data = append(data, value(f, r, n*f.Elements()*f.DType.Size())...)
		counts = append(counts, n)
	}
	return data, counts, nil
}

// TestTimestampsFromValues compares streams whose timestamps are the values of a field.
func TestTimestampsFromValues(t *testing.T) {
	const text = "float64 seconds\nint64 nanos\nfloat32[3] q\n"
	var list []recorded
	for k := range int64(20) {
		at := epoch + k*20_000_000
		b := []byte{0, 1, 0, 0}
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(at)/1e9))
		b = binary.LittleEndian.AppendUint64(b, uint64(at+7))
		for i := range int64(3) {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(k*i)))
		}
		list = append(list, recorded{
			topic: "/clocked", typ: "own_msgs/msg/Clocked", schema: text, log: at + 1000, data: b,
		})
	}
	path := writeRecording(t, list)
	compareMapped(t, path, `
streams:
  by_seconds: {from: [clocked.q], clock: "timestamps:clocked.seconds"}
  by_nanos: {from: [clocked.q], clock: "timestamps:clocked.nanos", timestamp_unit: ns,
    offset_ns: 11, slice: [1, 3], drift: {ppm: 12.5, at: "1770000000123456789 ns"}}
`)
}
