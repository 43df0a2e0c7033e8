package bag

import (
	"context"
	"strings"

	robocache "github.com/goatnote-inc/robocache"
)

// Storage is one recording: an MCAP file, a db3 file, or the files of a split bag as one. All its
// methods may be called from many goroutines. A message is named by its topic's place in Topics and
// its number in the topic, from 0 in log-time order (messages of one log time in the order of the
// file).
type Storage interface {
	// Topics lists the topics, in a stable order. Topics of one name and another type are topics of
	// their own.
	Topics() []TopicInfo
	// Index gives the times of a topic's messages without touching payloads where the storage
	// allows. The caller does not change it.
	Index(ctx context.Context, topic int) (*Index, error)
	// Messages gives the messages from ≤ i < to of a topic in order, one call of fn at a time. m
	// and its data are the storage's, until fn returns. Messages that damage took are left out.
	Messages(ctx context.Context, topic, from, to int, fn func(i int, m *Message) error) error
	// Walk gives all messages of these topics in one pass, those of a topic in order, one call of
	// fn at a time. An error of a topic, also of fn, ends that topic alone, and is in failed; what
	// m points at is the storage's, until fn returns.
	Walk(
		ctx context.Context,
		topics []int,
		fn func(topic, i int, m *Message) error,
	) (failed map[int]error, err error)
	// Notes are what it carries beside its messages: an MCAP file's metadata records,
	// "<record>.<key>" → value.
	Notes(ctx context.Context) (map[string]string, error)
	// Verify compares check sums over what no message is of: all of a file, files inside it. It
	// reads all that they cover.
	Verify(ctx context.Context) ([]robocache.Finding, error)
	// Bytes is the size of all its messages, decompressed; Held is what its indexes hold in memory
	// now.
	Bytes() int64
	Held() int64
	// Remote says that reading messages waits for a store.
	Remote() bool
	// Findings are what opening and reading met so far: a missing summary, skipped chunks, missing
	// splits.
	Findings() []robocache.Finding
	Close() error
}

// TopicInfo is what a recording says of a topic.
type TopicInfo struct {
	Name string // "/imu/data"
	Type string // "sensor_msgs/msg/Imu"
	// "ros2msg", "ros2idl"; "" where the recording has no schema (ros2.KnownSchema may)
	SchemaEncoding string
	SchemaText     string
	Encoding       string // of the messages: "cdr", "json", "protobuf" …
	Messages       int64
	Publish        bool // messages carry the time at which they were sent (Message.Publish)
	Sequence       bool // messages may carry their sender's count of them (Message.Sequence)
	Latched        bool // durability transient_local: the last message holds for who comes later
	Metadata       map[string]string
}

// Topics lists topics: of one name, type and encoding there is one.
type Topics struct {
	Infos []TopicInfo
	at    map[[3]string]int
}

// Add gives the place of a topic, which is that of one added before where it is the same.
func (l *Topics) Add(info TopicInfo) (place int) {
	k := [3]string{info.Name, info.Type, info.Encoding}
	place, ok := l.at[k]
	if !ok {
		if l.at == nil {
			l.at = map[[3]string]int{}
		}
		place = len(l.Infos)
		l.at[k] = place
		l.Infos = append(l.Infos, info)
	}
	return place
}

// Index is the times of a topic's messages, in log-time order.
type Index struct {
	Log []int64 // ns, not decreasing
	// ns; nil where the storage has none, or where only the messages have it (Message.Publish)
	Publish []int64
}

// Message is one message as stored.
type Message struct {
	Log, Publish int64  // ns; Publish is Log where the storage keeps none
	Sequence     uint32 // the sender's count of its messages; 0 where the storage keeps none
	Source       uint32 // which of a topic's senders
	Data         []byte
}

// Latched says that a quality of service keeps the last message for who comes later: durability
// transient_local. It is YAML, a list of profiles.
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
