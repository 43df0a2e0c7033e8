package robocache

import "encoding/json"

// MessageSource describes the ROS 2 messages from which a stream of a recording is read. A live
// program decodes the messages of a robot with it, into the rows that the recording's reader
// returns for them. A contract stores it as JSON.
type MessageSource struct {
	Topic    string `json:"topic"`    // "/joint_states"
	Type     string `json:"type"`     // "sensor_msgs/msg/JointState"
	Encoding string `json:"encoding"` // of the messages: "cdr"
	// SchemaEncoding is "ros2msg" or "ros2idl". It and Schema are empty if the type is one of the
	// common types of ROS 2.
	SchemaEncoding string `json:"schema_encoding,omitempty"`
	Schema         string `json:"schema,omitempty"`
	Field          string `json:"field,omitempty"` // suffix of the stream in its topic: ".position"
	// Clock is the clock that the reader chose: "header", "publish" or "log". The rows of a live
	// stream by the clock log have the times at which they arrive.
	Clock string `json:"clock"`
	// Latched reports that a row without a value holds the previous value.
	Latched bool `json:"latched,omitempty"`
	// Layout is the ros2.Layout of the topic: all that its decoder learned from the recording.
	Layout json.RawMessage `json:"layout,omitempty"`
	// Mapping makes the stream from fields of the topic. Its source keys are their suffixes. If it
	// is nil, the stream is Field.
	Mapping *StreamMapping `json:"mapping,omitempty"`
	// FiniteOnly reports that rows with NaN or infinity have no value.
	FiniteOnly bool `json:"finite_only,omitempty"`
}

// MessageOf returns the messages from which a stream is read: see Capabilities. It is nil if there
// are none.
func MessageOf(ds Dataset, key string) *MessageSource {
	if message := ds.Capabilities().Message; message != nil {
		return message(key)
	}
	return nil
}
