package transporttest

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/live/transport"
)

// Recording is the content of an MCAP file, in the order of the file.
type Recording struct {
	Path     string
	Channels []*transport.Channel
	Messages []transport.Message // Arrival is 0
}

// Read reads an MCAP file with a reader that shares no code with RoboCache.
func Read(tb testing.TB, path string) *Recording {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	reader, err := mcap.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer reader.Close()
	messages, err := reader.Messages(mcap.UsingIndex(false), mcap.InOrder(mcap.FileOrder))
	if err != nil {
		tb.Fatal(err)
	}
	rec := &Recording{Path: path}
	known := map[uint16]*transport.Channel{}
	for {
		schema, channel, m, err := messages.NextInto(nil)
		if errors.Is(err, io.EOF) {
			return rec
		}
		if err != nil {
			tb.Fatal(err)
		}
		if known[channel.ID] == nil {
			known[channel.ID] = &transport.Channel{
				Topic:          channel.Topic,
				Type:           schema.Name,
				Encoding:       channel.MessageEncoding,
				SchemaEncoding: schema.Encoding,
				Schema:         string(schema.Data),
			}
			rec.Channels = append(rec.Channels, known[channel.ID])
		}
		rec.Messages = append(rec.Messages, transport.Message{
			Channel: known[channel.ID],
			Data:    m.Data,
			Log:     int64(m.LogTime),
		})
	}
}

// Real returns a recording of a robot: six topics from 10 to 333 Hz, JPEG images and point clouds.
// It returns nil if the clone has no shared data.
func Real(tb testing.TB) *Recording {
	tb.Helper()
	path := filepath.Join(realdata.Dir(tb), "mcap_robot", "recording_zstd.mcap")
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return Read(tb, path)
}

const (
	syntheticStart    = int64(1_700_000_000_123_456_789)
	syntheticDuration = 2 * time.Second
)

// stream is a topic of the synthetic recording.
type stream struct {
	topic, messageType string
	period             time.Duration
	encode             func(log int64, random *rand.Rand) ([]byte, error)
}

var syntheticStreams = []stream{
	{
		"/task", "std_msgs/msg/String", syntheticDuration,
		func(int64, *rand.Rand) ([]byte, error) {
			return ros2.EncodeString(nil, "stack the cubes"), nil
		},
	},
	{
		"/joints", "std_msgs/msg/Float64MultiArray", 10 * time.Millisecond,
		func(_ int64, random *rand.Rand) ([]byte, error) {
			var values []byte
			for range 14 {
				bits := math.Float64bits(random.NormFloat64())
				values = binary.LittleEndian.AppendUint64(values, bits)
			}
			return ros2.EncodeMultiArray(nil, robocache.Float64, []int{14}, nil, values)
		},
	},
	{
		"/camera/compressed", "sensor_msgs/msg/CompressedImage", 33 * time.Millisecond,
		func(log int64, random *rand.Rand) ([]byte, error) {
			packet := randomBytes(random, 20_000+random.IntN(40_000))
			header := ros2.Header{Timestamp: log, FrameID: "camera"}
			return ros2.EncodeCompressedImage(nil, header, "jpeg", packet), nil
		},
	},
	{
		"/camera/raw", "sensor_msgs/msg/Image", 200 * time.Millisecond,
		func(log int64, random *rand.Rand) ([]byte, error) {
			return ros2.EncodeImage(
				nil,
				ros2.Header{Timestamp: log, FrameID: "camera"},
				&robocache.Raw{
					Width:    1024,
					Height:   768,
					Channels: 3,
					DType:    robocache.Uint8,
					Pix:      randomBytes(random, 3*1024*768),
				},
			)
		},
	},
}

func randomBytes(random *rand.Rand, size int) []byte {
	out := make([]byte, 0, size+8)
	for len(out) < size {
		out = binary.LittleEndian.AppendUint64(out, random.Uint64())
	}
	return out[:size]
}

// Synthetic writes a recording of two seconds and reads it: a text, 100 Hz numbers, 30 Hz packets
// of 20 to 60 kB, and 5 Hz images of 2.4 MB. All are valid ROS 2 messages, but the packets contain
// random bytes. The bytes are the same in every run.
func Synthetic(tb testing.TB) *Recording {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "recording.mcap")
	if err := writeSynthetic(path); err != nil {
		tb.Fatal(err)
	}
	return Read(tb, path)
}

func writeSynthetic(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := mcap.NewWriter(file, &mcap.WriterOptions{
		Chunked:     true,
		ChunkSize:   1 << 20,
		Compression: mcap.CompressionLZ4,
		IncludeCRC:  true,
	})
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&mcap.Header{Profile: "ros2", Library: "transporttest"}); err != nil {
		return err
	}
	for i, s := range syntheticStreams {
		text, _ := ros2.SchemaText(s.messageType)
		id := uint16(i + 1)
		if err := w.WriteSchema(&mcap.Schema{
			ID: id, Name: s.messageType, Encoding: "ros2msg", Data: []byte(text),
		}); err != nil {
			return err
		}
		if err := w.WriteChannel(&mcap.Channel{
			ID: id, SchemaID: id, Topic: s.topic, MessageEncoding: "cdr",
		}); err != nil {
			return err
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for at := time.Duration(0); at < syntheticDuration; at += time.Millisecond {
		for i, s := range syntheticStreams {
			if at%s.period != 0 {
				continue
			}
			log := syntheticStart + int64(at) + int64(random.IntN(500_000))
			data, err := s.encode(log, random)
			if err != nil {
				return err
			}
			if err := w.WriteMessage(&mcap.Message{
				ChannelID:   uint16(i + 1),
				LogTime:     uint64(log),
				PublishTime: uint64(log),
				Data:        data,
			}); err != nil {
				return err
			}
		}
	}
	return w.Close()
}
