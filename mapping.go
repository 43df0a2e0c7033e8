package robocache

// Mapping says what a format leaves open: which streams there are, under what names, on which
// clock, in which unit. Package mapping reads it from YAML; formats consult what concerns their
// reading, and the rest is put over the opened dataset.
type Mapping struct {
	// of the rows, where the format keeps no clock
	HZ Rate `json:"hz,omitzero"`
	// the anchor: a stream (source key or new key) whose rows are the episode's own
	Clock string `json:"clock,omitempty"`
	// a text stream (source key or new key) whose first non-empty value is the episode's task
	Task    string                   `json:"task,omitempty"`
	Streams map[string]StreamMapping `json:"streams"` // new key → what it is made of
	// streams that are not named: "keep" (default) or "drop"
	Rest    string            `json:"rest,omitempty"`
	Options map[string]string `json:"options,omitempty"` // OpenOptions.Options of the format
}

// StreamMapping is one stream made of others.
type StreamMapping struct {
	// source keys on one clock; several numeric ones are concatenated in this order
	From  []string `json:"from"`
	Slice []int    `json:"slice,omitempty"` // [from, to) of the (flat) row
	// header | publish | log, or "timestamps:<key>": a numeric stream that holds the timestamps
	Clock string `json:"clock,omitempty"`
	// of such a stream: "s" (default), "ms", "us", "ns"
	TimestampUnit string `json:"timestamp_unit,omitempty"`
	Offset        int64  `json:"offset_ns,omitempty"` // added to the timestamps
	// how fast the stream's clock runs, taken off ahead of Offset
	Drift Drift `json:"drift,omitzero"`
	// values × Scale (degrees → radians); 0 = 1
	Scale         float64 `json:"scale,omitempty"`
	Unit          string  `json:"unit,omitempty"`
	Interpolation string  `json:"interpolation,omitempty"`
	// channels that are rotations (of the joined, sliced row), interpolated as such; see
	// Interpolation
	Rotations []Rotation `json:"rotations,omitempty"`
	// which channels (of the joined, sliced row) are relative; see Feature.Relative
	Relative *Relative `json:"relative,omitempty"`
	Names    []string  `json:"names,omitempty"`
	// images: the order of their channels, "rgb" or "bgr"
	ChannelOrder string `json:"channel_order,omitempty"`
}

// SourceKey returns the source key of the stream that the mapping makes under a new key: the first
// one of several. It returns name itself if the mapping makes no such stream. A stream of the
// dataset takes precedence over a new key: ask SourceKey only if the dataset has no stream of the
// name.
func (m *Mapping) SourceKey(name string) string {
	if m == nil || len(m.Streams[name].From) == 0 {
		return name
	}
	return m.Streams[name].From[0]
}

func (m *Mapping) options() map[string]string {
	if m == nil {
		return nil
	}
	return m.Options
}
