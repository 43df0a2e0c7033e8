package bag

import (
	"context"
	"strings"

	robocache "github.com/goatnote-inc/robocache"
)

// Storage is one recording: an MCAP file, a db3 file, or all files of a split bag. All methods are
// safe for concurrent use. A message is identified by the index of its topic in Topics and its
// number in the topic. Numbers begin at 0 and follow the log time. Messages with equal log times
// are in file order.
type Storage interface {
	// Topics returns the topics in a stable order. Topics with the same name but different types
	// are separate.
	Topics() []TopicInfo
	// Index returns the times of a topic's messages, without reading payloads if the storage
	// allows. The caller must not modify the result.
	Index(ctx context.Context, topic int) (*Index, error)
	// Messages calls fn for the messages from ≤ i < to of a topic in order, one call at a time. m
	// and its data are valid until fn returns. Messages that are lost to damage are skipped.
	Messages(ctx context.Context, topic, from, to int, fn func(i int, m *Message) error) error
	// Walk calls fn for all messages of the topics in one pass, one call at a time. The messages of
	// a topic are in order. An error of a topic, or of fn, ends only that topic and is returned in
	// failed. m is valid until fn returns.
	Walk(
		ctx context.Context,
		topics []int,
		fn func(topic, i int, m *Message) error,
	) (failed map[int]error, err error)
	// Notes returns the metadata of the recording. For an MCAP file these are the metadata records,
	// as "<record>.<key>" → value.
	Notes(ctx context.Context) (map[string]string, error)
	// Verify checks the checksums that do not belong to single messages, such as those of whole
	// files. It reads all data that they cover.
	Verify(ctx context.Context) ([]robocache.Finding, error)
	// Bytes returns the decompressed size of all messages. Held returns the memory that the indexes
	// use now.
	Bytes() int64
	Held() int64
	// Remote reports whether reads use a network.
	Remote() bool
	// Findings returns the findings so far: a missing summary, skipped chunks, missing splits.
	Findings() []robocache.Finding
	Close() error
}

// TopicInfo is the description of a topic in a recording.
type TopicInfo struct {
	Name string // for example "/imu/data"
	Type string // for example "sensor_msgs/msg/Imu"
	// "ros2msg", "ros2idl"; "" if the recording has no schema (see ros2.KnownSchema)
	SchemaEncoding string
	SchemaText     string
	Encoding       string // encoding of the messages: "cdr", "json", "protobuf" …
	Messages       int64
	Publish        bool // messages contain the time of sending (Message.Publish)
	Sequence       bool // messages may contain a sequence number of the sender (Message.Sequence)
	Latched        bool // durability transient_local: late subscribers receive the last message
	Metadata       map[string]string
}

// Topics is a list of topics with unique name, type and encoding.
type Topics struct {
	Infos []TopicInfo
	index map[[3]string]int // name, type and encoding → index in Infos
}

// Add returns the index of a topic, and appends the topic if it is new.
func (l *Topics) Add(info TopicInfo) (index int) {
	k := [3]string{info.Name, info.Type, info.Encoding}
	index, ok := l.index[k]
	if !ok {
		if l.index == nil {
			l.index = map[[3]string]int{}
		}
		index = len(l.Infos)
		l.index[k] = index
		l.Infos = append(l.Infos, info)
	}
	return index
}

// Index contains the times of a topic's messages in log-time order.
type Index struct {
	Log []int64 // ns, not decreasing
	// ns; nil if the storage has none, or if only the messages have them (Message.Publish)
	Publish []int64
}

// Message is one message as stored.
type Message struct {
	Log, Publish int64  // ns; Publish equals Log if the storage has none
	Sequence     uint32 // sequence number of the sender; 0 if the storage has none
	Source       uint32 // identifies a sender of the topic
	Data         []byte
}

// Latched reports whether a quality of service has durability transient_local, so that late
// subscribers receive the last message. qos is YAML, a list of profiles.
func Latched(qos string) bool {
	for line := range strings.Lines(qos) {
		k, v, ok := strings.Cut(strings.TrimLeft(line, " -"), ":")
		if ok && strings.TrimSpace(k) == "durability" {
			v = strings.Trim(strings.TrimSpace(v), `"'`)
			return v == "1" || v == "transient_local"
		}
	}
	return false
}
