package live

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/live/transport"
	"github.com/goatnote-inc/robocache/loader/contract"
)

// A recording of what a policy saw is an MCAP file: the messages and values as they were pushed, in
// that order, with their arrival as log time and their timestamp as publish time. Messages of
// tickTopic stand where an observation took the samples, and messages of digestTopic where it was
// complete. The first message is the contract.
var (
	contractChannel = jsonChannel("/robocache/contract")
	tickChannel     = jsonChannel("/robocache/tick")
	digestChannel   = jsonChannel("/robocache/digest")
	resetChannel    = jsonChannel("/robocache/reset") // an episode begins
)

func jsonChannel(topic string) transport.Channel {
	return transport.Channel{
		Topic: topic, Type: strings.TrimPrefix(topic, "/"), Encoding: "json",
		SchemaEncoding: "jsonschema", Schema: "{}",
	}
}

// tickRecord is the JSON of one observation: where it took the samples.
type tickRecord struct {
	Tick int64  `json:"tick"`
	Task string `json:"task,omitempty"`
}

// digestRecord is the JSON of one observation: a hash of its values and masks.
type digestRecord struct {
	Tick   int64  `json:"tick"`
	Digest string `json:"digest"`
}

// recorder writes a recording in the background, so that a slow disk delays no publisher. A nil
// recorder records nothing.
type recorder struct {
	file  *os.File
	out   *mcap.Writer
	queue chan record
	done  chan struct{}

	mu       sync.Mutex
	queued   int64 // bytes that wait for the disk
	dropped  int64
	err      error
	isClosed bool

	// Owned by the goroutine that writes.
	schemas  map[string]uint16
	channels map[transport.Channel]uint16
}

// record is one message to write.
type record struct {
	channel transport.Channel
	message mcap.Message
}

// Limits of what may wait for the disk.
const (
	recordQueue = 4096      // messages
	recordBytes = 256 << 20 // bytes of messages
)

// recordedSetup is the JSON of the first message.
type recordedSetup struct {
	Contract     *contract.Contract `json:"contract"`
	MemoryBudget int64              `json:"memory_budget"`
}

// Record creates an MCAP file and writes to it, until Close, what is pushed and observed. It must be
// called before the first Push.
func (l *Live) Record(path string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	where := robocache.Where{"file": path}
	if l.isClosed.Load() {
		return errClosed()
	}
	if l.recorder.Load() != nil {
		return robocache.Misuse("live", where, "a recording is being written already")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return robocache.Misuse("live", where, "the recording cannot be created").WithCause(err).
			WithHint("Name a file that does not exist.")
	}
	r := &recorder{
		file: f, queue: make(chan record, recordQueue), done: make(chan struct{}),
		schemas: map[string]uint16{}, channels: map[transport.Channel]uint16{},
	}
	r.out, err = mcap.NewWriter(f, mcap.WriterOptions{Compression: mcap.Zstd})
	if err != nil {
		f.Close()
		return robocache.At(err, where)
	}
	go r.writeQueue()
	l.recorder.Store(r)
	return r.addJSON(contractChannel, 0, recordedSetup{l.Contract, l.budget})
}

// add queues a message. It drops and counts the message if the disk is too slow.
func (r *recorder) add(channel transport.Channel, log, publish int64, data []byte) error {
	if r == nil {
		return nil
	}
	m := mcap.Message{Log: log, Publish: publish, Data: slices.Clone(data)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return nil
	}
	n := int64(len(data))
	if r.err == nil && r.queued+n <= recordBytes {
		select {
		case r.queue <- record{channel, m}:
			r.queued += n
			return nil
		default:
		}
	}
	r.dropped++ // a full disk does not stop the robot; finish reports it
	return nil
}

// addTick records that an observation takes the samples that were added so far.
func (r *recorder) addTick(tick int64, task string) error {
	if r == nil {
		return nil
	}
	return r.addJSON(tickChannel, tick, tickRecord{tick, task})
}

// addReset records that an episode begins.
func (r *recorder) addReset() error {
	if r == nil {
		return nil
	}
	return r.addJSON(resetChannel, 0, struct{}{})
}

// addDigest records a complete observation.
func (r *recorder) addDigest(o *Observation) error {
	if r == nil {
		return nil
	}
	return r.addJSON(digestChannel, o.Tick, digestRecord{o.Tick, o.digest()})
}

func (r *recorder) addJSON(channel transport.Channel, at int64, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return r.add(channel, at, at, data)
}

// addSample records a decoded value as the ROS 2 message that fits it.
func (r *recorder) addSample(s *streamBuffer, x *Sample, arrival int64) error {
	if r == nil {
		return nil
	}
	name, data, err := encodeSample(s, x)
	if err != nil {
		return robocache.At(err, robocache.Where{"stream": s.Key})
	}
	schema, _ := ros2.SchemaText(name)
	channel := transport.Channel{
		Topic: "/" + s.Key, Type: name, Encoding: "cdr", SchemaEncoding: "ros2msg", Schema: schema,
	}
	return r.add(channel, arrival, x.Stamp, data)
}

// missingType is the type of the message of a row without a value. It has no content.
const missingType = "std_msgs/msg/Empty"

// encodeSample returns the ROS 2 message of a value and its type.
func encodeSample(s *streamBuffer, x *Sample) (name string, data []byte, err error) {
	switch {
	case x.IsMissing || x.Still != nil && x.Still.Missing:
		return missingType, []byte{0, 1, 0, 0, 0}, nil
	case s.Kind == robocache.KindText || s.Kind == robocache.KindEvent:
		return "std_msgs/msg/String", ros2.EncodeString(nil, x.Text), nil
	case s.Kind != robocache.KindImage && s.Kind != robocache.KindVideo:
		dtype, shape := s.DType, []int{len(x.Data) / max(s.DType.Size(), 1)}
		if dtype == robocache.Bool {
			dtype = robocache.Uint8
		}
		name, _ = ros2.MultiArrayType(dtype)
		data, err = ros2.EncodeMultiArray(nil, dtype, shape, nil, x.Data)
		return name, data, err
	case x.Still != nil && x.Still.Raw != nil:
		data, err = ros2.EncodeImage(nil, ros2.Header{Timestamp: x.Stamp}, x.Still.Raw)
		return "sensor_msgs/msg/Image", data, err
	case x.Still != nil:
		data = ros2.EncodeCompressedImage(nil, ros2.Header{Timestamp: x.Stamp}, "", x.Still.Encoded)
		return "sensor_msgs/msg/CompressedImage", data, nil
	}
	return "", nil, robocache.Unsupported("live", nil, "a recording of decoded frames of video").
		WithHint("Push the messages of the camera.")
}

// writeQueue writes the queued messages until the queue is closed.
func (r *recorder) writeQueue() {
	defer close(r.done)
	for x := range r.queue {
		r.mu.Lock()
		r.queued -= int64(len(x.message.Data))
		r.mu.Unlock()
		if err := r.write(&x); err != nil {
			r.mu.Lock()
			r.err = robocache.Temporary("live", robocache.Where{"file": r.file.Name()},
				"the recording cannot be written").WithCause(err)
			r.mu.Unlock()
			for range r.queue { // publishers go on
			}
			return
		}
	}
}

// write writes one message, and its channel before the first one.
func (r *recorder) write(x *record) error {
	c := &x.channel
	id, ok := r.channels[*c]
	if !ok {
		schema, known := r.schemas[c.Type]
		if !known {
			var err error
			if schema, err = r.out.Schema(c.Type, c.SchemaEncoding, c.Schema); err != nil {
				return err
			}
			r.schemas[c.Type] = schema
		}
		var err error
		if id, err = r.out.Channel(schema, c.Topic, c.Encoding, nil); err != nil {
			return err
		}
		r.channels[*c] = id
	}
	x.message.Channel = id
	return r.out.Message(&x.message)
}

// finish writes what is queued and ends the file.
func (r *recorder) finish() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.isClosed = true
	r.mu.Unlock()
	close(r.queue)
	<-r.done
	err := r.out.Close()
	if closing := r.file.Close(); err == nil {
		err = closing
	}
	if r.err != nil {
		return r.err
	}
	if r.dropped > 0 {
		return robocache.Temporary("live", robocache.Where{"file": r.file.Name()},
			"%d messages are not in the recording: the disk was too slow", r.dropped)
	}
	return err
}

// digest returns a hash of the values and masks of an observation.
func (o *Observation) digest() string {
	h := xxh3.New()
	for _, t := range o.Tensors {
		h.Write(t.Data)
	}
	for _, t := range o.Texts {
		for _, v := range t.Values {
			fmt.Fprintf(h, "%d:%s", len(v), v)
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Verify pushes the messages of a recording that Record wrote in the order in which they were
// pushed, and compares each observation with the one that the policy saw.
func Verify(ctx context.Context, path string) (*ReplayResult, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, robocache.NotFound("live", robocache.Where{"file": path}, "").WithCause(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	v := &verifier{ctx: ctx, topics: map[string]*ros2.Topic{}}
	defer v.closeLive()
	v.result.DifferentKeys = map[string]int64{}
	v.tail = mcap.NewTail(f, mcap.TailLimits)
	failed := v.tail.Poll(ctx, size, func(channel *mcap.MessageChannel, m *mcap.Message) {
		if v.err == nil {
			v.err = v.play(channel, m)
		}
	})
	if failed == nil {
		failed = v.err
	}
	return &v.result, robocache.At(failed, robocache.Where{"file": path})
}

// verifier plays a recording of what a policy saw.
type verifier struct {
	ctx    context.Context
	live   *Live
	tail   *mcap.Tail
	topics map[string]*ros2.Topic // of decoded values
	seen   *Observation
	failed error // of the last observation
	result ReplayResult
	err    error
}

// play pushes one message, or makes or compares one observation.
func (v *verifier) play(channel *mcap.MessageChannel, m *mcap.Message) error {
	if v.live == nil {
		return v.open(channel, m)
	}
	switch channel.Topic {
	case tickChannel.Topic:
		return v.observe(m.Data)
	case digestChannel.Topic:
		return v.compare(m.Data)
	case resetChannel.Topic:
		return v.live.Reset()
	}
	s := v.live.byKey[strings.TrimPrefix(channel.Topic, "/")]
	if s == nil || slices.Contains(v.live.Topics(), channel.Topic) {
		// A message that was rejected then is rejected again.
		_ = v.live.PushMessage(channel.Topic, m.Data, m.Publish, m.Log)
		return nil
	}
	x, err := v.decodeSample(s, channel, m)
	if err != nil {
		return err
	}
	return v.live.Push(s.Key, x)
}

// open makes a Live of the contract, which is the first message.
func (v *verifier) open(channel *mcap.MessageChannel, m *mcap.Message) error {
	if channel.Topic != contractChannel.Topic {
		return robocache.Malformed("live", nil, "the file is no recording of observations").
			WithHint("live.record(path) writes one.")
	}
	var setup struct {
		Contract     json.RawMessage `json:"contract"`
		MemoryBudget int64           `json:"memory_budget"`
	}
	if err := json.Unmarshal(m.Data, &setup); err != nil {
		return robocache.Malformed("live", nil, "the contract of the recording").WithCause(err)
	}
	c, err := contract.Parse(setup.Contract)
	if err != nil {
		return err
	}
	v.live, err = Open(v.ctx, c, Config{MemoryBudget: setup.MemoryBudget})
	return err
}

func (v *verifier) closeLive() {
	if v.seen != nil {
		v.seen.Release()
	}
	if v.live != nil {
		v.live.Close()
	}
}

// decodeSample is the inverse of encodeSample.
func (v *verifier) decodeSample(
	s *streamBuffer, channel *mcap.MessageChannel, m *mcap.Message,
) (*Sample, error) {
	x := &Sample{Stamp: m.Publish, Arrival: m.Log}
	if v.tail.Schema(channel).Name == missingType {
		x.IsMissing = true
		return x, nil
	}
	var err error
	topic := v.topics[channel.Topic]
	if topic == nil || s.Ragged() {
		schema := v.tail.Schema(channel)
		loaded, known := ros2.KnownSchema(schema.Name)
		if !known {
			return nil, robocache.Malformed("live", nil, "a value of type %s", schema.Name)
		}
		if topic, err = ros2.NewTopic(channel.Topic, loaded, [][]byte{m.Data}); err != nil {
			return nil, err
		}
		v.topics[channel.Topic] = topic
	}
	switch {
	case s.Kind == robocache.KindText || s.Kind == robocache.KindEvent:
		x.Text, err = topic.Text(m.Data, 0, 0)
	case s.Kind == robocache.KindImage || s.Kind == robocache.KindVideo:
		var ref robocache.FrameRef
		ref, err = topic.Image(m.Data, 0, 0)
		x.Still = &ref
	default:
		f := topic.Fields()[0].Feature
		x.Data = make([]byte, f.RowBytes())
		_, err = topic.Numeric(m.Data, 0, 0, x.Data)
	}
	return x, err
}

// observe makes the observation of a tick again.
func (v *verifier) observe(data []byte) error {
	var tick tickRecord
	if err := json.Unmarshal(data, &tick); err != nil {
		return robocache.Malformed("live", nil, "a record of a tick").WithCause(err)
	}
	if tick.Tick < v.live.last { // the clock was set back
		v.live.first, v.live.last = Now, Now
	}
	v.live.SetTask(tick.Task)
	seen, err := v.live.Observe(v.ctx, tick.Tick, 0, v.seen)
	v.failed = err
	if err == nil {
		v.seen = seen
	}
	return nil // a tick that failed then, too, has no digest
}

// compare compares the last observation with the one that the policy saw.
func (v *verifier) compare(data []byte) error {
	var want digestRecord
	if err := json.Unmarshal(data, &want); err != nil {
		return robocache.Malformed("live", nil, "a record of an observation").WithCause(err)
	}
	v.result.Ticks++
	if v.failed != nil {
		return v.failed
	}
	if v.seen == nil || v.seen.Tick != want.Tick || v.seen.digest() != want.Digest {
		if v.result.DifferentTicks == 0 {
			v.result.FirstTick = want.Tick
		}
		v.result.DifferentTicks++
	}
	return nil
}
