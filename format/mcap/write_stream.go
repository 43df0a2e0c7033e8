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

// target is a stream as it is written.
type target struct {
	feature robocache.Feature
	topic   string
	how     how
	typ     string // of the messages; of images settled by the first one
	dtype   robocache.DType
	fields  []ros2.PointField // of a cloud
	codec   video.Codec       // of packets
	colour  *video.Colour
}

type how int

const (
	asArray how = iota
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

// settle finds the messages for a stream; false where there are none.
func (t *target) settle() bool {
	f := &t.feature
	t.dtype = f.DType
	switch f.Kind {
	case robocache.KindText, robocache.KindEvent:
		t.how, t.typ = asText, typeString
		return true
	case robocache.KindImage, robocache.KindVideo:
		t.how = asImage
		return true
	}
	if f.Elements() <= 0 || f.DType.Size() == 0 {
		return false
	}
	switch f.DType { // the bits, under a type that messages have
	case robocache.Bool:
		t.dtype = robocache.Uint8
	case robocache.Float16, robocache.BFloat16:
		t.dtype = robocache.Uint16
	}
	if f.Ragged() && f.Kind == robocache.KindPointCloud && len(f.Shape) == 2 && t.pointFields() {
		t.how, t.typ = asCloud, typeCloud
		return true
	}
	t.how = asArray
	if f.Ragged() {
		t.how = asRagged
	}
	var ok bool
	t.typ, ok = ros2.MultiArrayType(t.dtype)
	return ok
}

// pointFields names the channels of a cloud: x, y, z and what the dataset says.
func (t *target) pointFields() bool {
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

// source gives the messages of a stream of one episode in order.
type source struct {
	*target
	w       *writing
	ep      int
	times   []int64
	next    int
	batch   [][]byte
	from    int // of batch
	channel uint16
	made    bool
	typ     string
	proof   *video.Stream // of packets
}

// rowsAt is how many rows of a stream are read at a time.
func (s *source) rowsAt() int {
	switch s.how {
	case asImage, asPackets:
		return 32
	case asCloud, asRagged:
		return 64
	case asText:
		return 1024
	}
	return max(16, min(4096, (1<<20)/max(1, s.feature.RowBytes())))
}

// message gives the next message; it stays good until the next batch.
func (s *source) message(ctx context.Context) ([]byte, error) {
	if s.next >= s.from+len(s.batch) {
		n := min(s.rowsAt(), len(s.times)-s.next)
		s.from, s.batch = s.next, s.batch[:0]
		if err := s.fill(ctx, reader.Rows(s.ep, s.from, s.from+n)); err != nil {
			return nil, err
		}
		if len(s.batch) != n {
			return nil, robocache.Malformed("mcap write", robocache.Where{"stream": s.feature.Key}, "").
				Expected(fmt.Sprintf("%d rows", n), fmt.Sprint(len(s.batch)))
		}
	}
	return s.batch[s.next-s.from], nil
}

// fill makes the messages of some rows.
func (s *source) fill(ctx context.Context, rows []robocache.Row) (err error) {
	f, src := &s.feature, s.w.src
	defer robocache.LocateIn(&err, "stream", f.Key)
	add := func(m []byte, err error) error {
		if err != nil {
			return err
		}
		s.batch = append(s.batch, m)
		return nil
	}
	switch s.how {
	case asText:
		textValue, err := src.Text(ctx, f.Key, rows)
		if err != nil {
			return err
		}
		for _, text := range textValue {
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
				row, dims = nil, []int{0} // no elements: the row holds no value
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
			if s.how == asCloud {
				if err := add(
					ros2.EncodePointCloud2(nil, s.header(i), s.fields, w, data[:n*w]),
				); err != nil {
					return err
				}
			} else {
				if err := add(
					ros2.EncodeMultiArray(
						nil,
						s.dtype,
						append([]int{n}, f.Shape[1:]...),
						nil,
						data[:n*w],
					),
				); err != nil {
					return err
				}
			}
			data = data[n*w:]
		}
	case asPackets:
		if err := s.packets(ctx, rows); err != nil {
			return err
		}
	default:
		if err := stills.New(src, s.w.pool).
			Each(ctx, f, rows, func(i int, ref *robocache.FrameRef) error {
				return func() error {
					frame, err := s.frame(ref, s.header(i))
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

// header is that of a message of the batch.
func (s *source) header(i int) ros2.Header {
	return ros2.Header{Timestamp: s.times[s.from+i], FrameID: s.feature.Key}
}

// frame makes the message of an image. All of a stream's are of one type: the first one's.
func (s *source) frame(ref *robocache.FrameRef, h ros2.Header) ([]byte, error) {
	compressed := ref.Raw == nil || s.w.images != "raw"
	if s.typ == "" {
		s.typ = typeImage
		if compressed {
			s.typ = typeCompressed
		}
	}
	switch {
	case ref.Missing:
		if s.typ == typeCompressed {
			return ros2.EncodeCompressedImage(nil, h, "png", nil), nil
		}
		return nil, robocache.Unsupported("mcap write", nil, "a missing image among raw ones").
			WithHint("write with %s", robocache.Option("write_option", "images", "png"))
	case s.typ == typeImage && ref.Raw != nil:
		return ros2.EncodeImage(nil, h, ref.Raw)
	case ref.Raw != nil && s.w.images == "jpeg" && ref.Raw.DType == robocache.Uint8:
		asJPEGValue, err := asJPEG(ref.Raw)
		if err != nil {
			return nil, err
		}
		return ros2.EncodeCompressedImage(nil, h, "jpeg", asJPEGValue), nil
	}
	encodeImage, err := video.EncodeImage(ref)
	if err != nil {
		return nil, err
	}
	return ros2.EncodeCompressedImage(nil, h, "", encodeImage), nil
}

func asJPEG(r *robocache.Raw) ([]byte, error) {
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

// messages writes the messages of all streams of an episode by time; of one time in the order of
// the streams.
func (w *writing) messages(ctx context.Context, cw *container.Writer, ep int) (err error) {
	defer crash.Recover("mcap", &err)
	schemas := map[string]uint16{}
	var list []*source
	if task, err := w.task(ctx, ep); err != nil {
		return err
	} else if task != nil {
		list = append(list, task)
	}
	for i := range w.streams {
		t := &w.streams[i]
		times, err := w.src.Times(ctx, ep, t.feature.Key)
		if err != nil {
			return err
		}
		list = append(list, &source{target: t, w: w, ep: ep, typ: t.typ, times: times})
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
		data, err := s.message(ctx)
		if err != nil {
			return err
		}
		if !s.made {
			if err := s.begin(cw, schemas); err != nil {
				return err
			}
		}
		at := s.times[s.next]
		if err := cw.Message(
			&container.Message{
				Channel:  s.channel,
				Sequence: uint32(s.next),
				Log:      at,
				Publish:  at,
				Data:     data,
			},
		); err != nil {
			return robocache.At(err, robocache.Where{"stream": s.feature.Key, "row": s.next})
		}
		s.next++
		w.rows.Advance(ep, 1/float64(messages))
	}
}

// latchedQoS is the profile of a latched topic, whole: rosbag2 and rosbags refuse one that lacks a
// field. Durations without end are rmw's.
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

// begin adds schema and channel of a stream.
func (s *source) begin(cw *container.Writer, schemas map[string]uint16) error {
	id, ok := schemas[s.typ]
	if !ok {
		text, known := ros2.SchemaText(s.typ)
		if !known {
			return robocache.Unsupported("mcap write", nil, "no text of the type %s", s.typ)
		}
		var err error
		if id, err = cw.Schema(s.typ, "ros2msg", text); err != nil {
			return err
		}
		schemas[s.typ] = id
	}
	var meta map[string]string
	if s.feature.Latched {
		meta = map[string]string{"offered_qos_profiles": latchedQoS}
	}
	var err error
	if s.channel, err = cw.Channel(id, s.topic, "cdr", meta); err != nil {
		return err
	}
	s.made = true
	return nil
}

// task is the task as a topic: a message where the text changes. nil where the dataset says
// nothing, or has a stream of that name.
func (w *writing) task(ctx context.Context, ep int) (*source, error) {
	if w.info.Feature("task") != nil {
		return nil, nil
	}
	timestamps, err := w.src.Times(ctx, ep, "")
	if err != nil || len(timestamps) == 0 {
		if err != nil {
			return nil, err
		}
		return nil, nil
	}
	s := &source{
		target: &target{
			topic:   bag.TaskTopic,
			how:     asText,
			typ:     typeString,
			feature: robocache.Feature{Key: "task", Kind: robocache.KindText},
		},
		w:   w,
		ep:  ep,
		typ: typeString,
	}
	const step = 4096
	last, said := "", false
	for at := 0; at < len(timestamps); at += step {
		texts, err := w.src.Text(ctx, "task", reader.Rows(ep, at, min(at+step, len(timestamps))))
		if err != nil {
			return nil, err
		}
		for i, text := range texts {
			if text != last || !said && text != "" {
				s.times = append(s.times, timestamps[at+i])
				s.batch = append(s.batch, ros2.EncodeString(nil, text))
				last, said = text, true
			}
		}
	}
	if !said {
		return nil, nil
	}
	return s, nil
}
