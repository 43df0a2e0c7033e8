package mcap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/stills"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// target describes how a stream is written.
type target struct {
	feature     robocache.Feature
	topic       string
	kind        targetKind
	messageType string // message type; for images, the first image determines it
	dtype       robocache.DType
	fields      []ros2.PointField // of a point cloud
	codec       video.Codec       // of copied packets
	colour      *video.Colour
}

type targetKind int

const (
	asArray targetKind = iota
	asRagged
	asCloud
	asText
	asImage
	asPackets
)

const (
	typeImage      = "sensor_msgs/msg/Image"
	typeCompressed = "sensor_msgs/msg/CompressedImage"
	typeCloud      = "sensor_msgs/msg/PointCloud2"
	typeString     = "std_msgs/msg/String"
)

// selectType selects the message type of a stream. It returns false if no type fits.
func (t *target) selectType() bool {
	f := &t.feature
	t.dtype = f.DType
	switch f.Kind {
	case robocache.KindText, robocache.KindEvent:
		t.kind, t.messageType = asText, typeString
		return true
	case robocache.KindImage, robocache.KindVideo:
		t.kind = asImage
		return true
	}
	if f.Elements() <= 0 || f.DType.Size() == 0 {
		return false
	}
	switch f.DType { // stored as bits in a type that messages have
	case robocache.Bool:
		t.dtype = robocache.Uint8
	case robocache.Float16, robocache.BFloat16:
		t.dtype = robocache.Uint16
	}
	if f.Ragged() && f.Kind == robocache.KindPointCloud && len(f.Shape) == 2 &&
		t.choosePointFields() {
		t.kind, t.messageType = asCloud, typeCloud
		return true
	}
	t.kind = asArray
	if f.Ragged() {
		t.kind = asRagged
	}
	var ok bool
	t.messageType, ok = ros2.MultiArrayType(t.dtype)
	return ok
}

// choosePointFields names the channels of a point cloud: x, y, z, or the names in the dataset.
func (t *target) choosePointFields() bool {
	switch t.feature.DType {
	case robocache.Int8,
		robocache.Uint8,
		robocache.Int16,
		robocache.Uint16,
		robocache.Int32,
		robocache.Uint32,
		robocache.Float32,
		robocache.Float64:
	default:
		return false
	}
	var names []string
	n := t.feature.Shape[1]
	if json.Unmarshal(t.feature.Names, &names) != nil || len(names) != n || len(names) == 0 {
		names = slices.Clone([]string{"x", "y", "z", "intensity"}[:min(n, 4)])
		for len(names) < n {
			names = append(names, fmt.Sprintf("c%d", len(names)))
		}
	}
	size := t.feature.DType.Size()
	for i, name := range names {
		if slices.Contains(names[:i], name) || name == "" {
			return false
		}
		t.fields = append(
			t.fields,
			ros2.PointField{Name: name, Offset: i * size, DType: t.feature.DType, Count: 1},
		)
	}
	return true
}

// source produces the messages of one stream of an episode in order.
type source struct {
	*target
	writer      *datasetWriter
	episode     int
	times       []int64
	next        int
	batch       [][]byte
	batchStart  int // row of the first message in batch
	channel     uint16
	hasChannel  bool
	messageType string
	proof       *video.Stream // verifies copied packets
}

// batchRows returns the number of rows that are read at a time.
func (s *source) batchRows() int {
	switch s.kind {
	case asImage, asPackets:
		return 32
	case asCloud, asRagged:
		return 64
	case asText:
		return 1024
	}
	return max(16, min(4096, (1<<20)/max(1, s.feature.RowBytes())))
}

// nextMessage returns the next message. It is valid until the next batch.
func (s *source) nextMessage(ctx context.Context) ([]byte, error) {
	if s.next >= s.batchStart+len(s.batch) {
		n := min(s.batchRows(), len(s.times)-s.next)
		s.batchStart, s.batch = s.next, s.batch[:0]
		if err := s.fillBatch(ctx, reader.Rows(s.episode, s.batchStart, s.batchStart+n)); err !=
			nil {
			return nil, err
		}
		if len(s.batch) != n {
			return nil, robocache.Malformed("mcap write", robocache.Where{
				"stream": s.feature.Key,
			}, "").
				Expected(fmt.Sprintf("%d rows", n), fmt.Sprint(len(s.batch)))
		}
	}
	return s.batch[s.next-s.batchStart], nil
}

// fillBatch makes the messages of some rows.
func (s *source) fillBatch(ctx context.Context, rows []robocache.Row) (err error) {
	f, src := &s.feature, s.writer.source
	defer robocache.LocateIn(&err, "stream", f.Key)
	add := func(m []byte, err error) error {
		if err != nil {
			return err
		}
		s.batch = append(s.batch, m)
		return nil
	}
	switch s.kind {
	case asText:
		texts, err := src.Text(ctx, f.Key, rows)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if err := add(ros2.EncodeString(nil, text), nil); err != nil {
				return err
			}
		}
	case asArray:
		w := f.RowBytes()
		data := make([]byte, w*len(rows))
		if err := src.Gather(ctx, f.Key, rows, data); err != nil {
			return err
		}
		valid, err := robocache.Validity(ctx, src, f, rows)
		if err != nil {
			return err
		}
		for i := range rows {
			row, dims := data[i*w:(i+1)*w], f.Shape
			if len(dims) == 0 {
				dims = []int{1}
			}
			if valid != nil && valid[i] == 0 {
				row, dims = nil, []int{0} // no elements, because the row holds no value
			}
			if err := add(ros2.EncodeMultiArray(nil, s.dtype, dims, nil, row)); err != nil {
				return err
			}
		}
	case asRagged, asCloud:
		data, counts, err := robocache.GatherRagged(ctx, src, f.Key, rows)
		if err != nil {
			return err
		}
		w := f.Elements() * f.DType.Size()
		for i, n := range counts {
			if s.kind == asCloud {
				if err := add(ros2.EncodePointCloud2(nil, s.messageHeader(i), s.fields, w,
					data[:n*w])); err != nil {
					return err
				}
			} else {
				if err := add(ros2.EncodeMultiArray(nil, s.dtype, append([]int{n}, f.Shape[1:]...),
					nil, data[:n*w])); err != nil {
					return err
				}
			}
			data = data[n*w:]
		}
	case asPackets:
		if err := s.copyPackets(ctx, rows); err != nil {
			return err
		}
	default:
		if err := stills.New(src, s.writer.pool).
			Each(ctx, f, rows, func(i int, ref *robocache.FrameRef) error {
				return func() error {
					frame, err := s.encodeFrame(ref, s.messageHeader(i))
					if err != nil {
						return err
					}
					return add(frame, nil)
				}()
			}); err != nil {
			return err
		}
	}
	return nil
}

// messageHeader returns the header of message i of the batch.
func (s *source) messageHeader(i int) ros2.Header {
	return ros2.Header{Timestamp: s.times[s.batchStart+i], FrameID: s.feature.Key}
}

// encodeFrame returns the message of an image. All images of a stream have the type of the first
// one.
func (s *source) encodeFrame(ref *robocache.FrameRef, h ros2.Header) ([]byte, error) {
	compressed := ref.Raw == nil || s.writer.images != "raw"
	if s.messageType == "" {
		s.messageType = typeImage
		if compressed {
			s.messageType = typeCompressed
		}
	}
	switch {
	case ref.Missing:
		if s.messageType == typeCompressed {
			return ros2.EncodeCompressedImage(nil, h, "png", nil), nil
		}
		return nil, robocache.Unsupported("mcap write", nil, "a missing image among raw ones").
			WithHint("write with %s", robocache.Option("write_option", "images", "png"))
	case s.messageType == typeImage && ref.Raw != nil:
		return ros2.EncodeImage(nil, h, ref.Raw)
	case ref.Raw != nil && s.writer.images == "jpeg" && ref.Raw.DType == robocache.Uint8:
		encoded, err := encodeJPEG(ref.Raw)
		if err != nil {
			return nil, err
		}
		return ros2.EncodeCompressedImage(nil, h, "jpeg", encoded), nil
	}
	encoded, err := video.EncodeImage(ref)
	if err != nil {
		return nil, err
	}
	return ros2.EncodeCompressedImage(nil, h, "", encoded), nil
}

func encodeJPEG(r *robocache.Raw) ([]byte, error) {
	spec := &video.Spec{Pixel: video.RGB8, Width: r.Width, Height: r.Height}
	rgb := make([]byte, 3*r.Width*r.Height)
	if err := video.DecodeImage(&robocache.FrameRef{Raw: r}, spec, rgb); err != nil {
		return nil, err
	}
	m := image.NewRGBA(image.Rect(0, 0, r.Width, r.Height))
	for i := range r.Width * r.Height {
		m.Pix[4*i], m.Pix[4*i+1], m.Pix[4*i+2], m.Pix[4*i+3] = rgb[3*i], rgb[3*i+1], rgb[3*i+2], 255
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 95}); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeMessages writes the messages of all streams of an episode by time. Messages with equal times
// are in the order of the streams.
func (w *datasetWriter) writeMessages(
	ctx context.Context,
	cw *container.Writer,
	ep int,
) (err error) {
	defer crash.Recover("mcap", &err)
	schemas := map[string]uint16{}
	var list []*source
	if task, err := w.taskSource(ctx, ep); err != nil {
		return err
	} else if task != nil {
		list = append(list, task)
	}
	for i := range w.streams {
		t := &w.streams[i]
		times, err := w.source.Times(ctx, ep, t.feature.Key)
		if err != nil {
			return err
		}
		list = append(
			list,
			&source{target: t, writer: w, episode: ep, messageType: t.messageType, times: times},
		)
	}
	messages := 0
	for _, s := range list {
		messages += len(s.times)
	}
	for {
		var s *source
		for _, o := range list {
			if o.next < len(o.times) && (s == nil || o.times[o.next] < s.times[s.next]) {
				s = o
			}
		}
		if s == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := s.nextMessage(ctx)
		if err != nil {
			return err
		}
		if !s.hasChannel {
			if err := s.addChannel(cw, schemas); err != nil {
				return err
			}
		}
		at := s.times[s.next]
		if err := cw.Message(&container.Message{
			Channel: s.channel, Sequence: uint32(s.next),
			Log: at, Publish: at, Data: data,
		}); err != nil {
			return robocache.At(err, robocache.Where{"stream": s.feature.Key, "row": s.next})
		}
		s.next++
		w.rows.Advance(ep, 1/float64(messages))
	}
}

// latchedQoS is the complete QoS profile of a latched topic, because rosbag2 and rosbags reject a
// profile without all fields. Infinite durations have the values of rmw.
const latchedQoS = `- history: 1
  depth: 1
  reliability: 1
  durability: 1
  deadline: {sec: 9223372036, nsec: 854775807}
  lifespan: {sec: 9223372036, nsec: 854775807}
  liveliness: 1
  liveliness_lease_duration: {sec: 9223372036, nsec: 854775807}
  avoid_ros_namespace_conventions: false
`

// addChannel adds the schema and the channel of a stream.
func (s *source) addChannel(cw *container.Writer, schemas map[string]uint16) error {
	id, ok := schemas[s.messageType]
	if !ok {
		text, known := ros2.SchemaText(s.messageType)
		if !known {
			return robocache.Unsupported("mcap write", nil, "no text of the type %s", s.messageType)
		}
		var err error
		if id, err = cw.Schema(s.messageType, "ros2msg", text); err != nil {
			return err
		}
		schemas[s.messageType] = id
	}
	var meta map[string]string
	if s.feature.Latched {
		meta = map[string]string{"offered_qos_profiles": latchedQoS}
	}
	var err error
	if s.channel, err = cw.Channel(id, s.topic, "cdr", meta); err != nil {
		return err
	}
	s.hasChannel = true
	return nil
}

// taskSource returns the task as a topic with a message for each change of the text. It returns nil
// if the dataset has no task, or has a stream of that name.
func (w *datasetWriter) taskSource(ctx context.Context, ep int) (*source, error) {
	if w.info.Feature("task") != nil {
		return nil, nil
	}
	timestamps, err := w.source.Times(ctx, ep, "")
	if err != nil || len(timestamps) == 0 {
		if err != nil {
			return nil, err
		}
		return nil, nil
	}
	s := &source{
		target: &target{
			topic:       bag.TaskTopic,
			kind:        asText,
			messageType: typeString,
			feature:     robocache.Feature{Key: "task", Kind: robocache.KindText},
		},
		writer:      w,
		episode:     ep,
		messageType: typeString,
	}
	const step = 4096
	last, hasTask := "", false
	for at := 0; at < len(timestamps); at += step {
		texts, err := w.source.Text(ctx, "task", reader.Rows(ep, at, min(at+step, len(timestamps))))
		if err != nil {
			return nil, err
		}
		for i, text := range texts {
			if text != last || !hasTask && text != "" {
				s.times = append(s.times, timestamps[at+i])
				s.batch = append(s.batch, ros2.EncodeString(nil, text))
				last, hasTask = text, true
			}
		}
	}
	if !hasTask {
		return nil, nil
	}
	return s, nil
}
