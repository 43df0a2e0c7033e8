package robocache

// Mapping says what a format leaves open: which streams there are, under what names, on which clock, in which unit. Package mapping
// reads it from YAML; formats consult what concerns their reading, and the rest is put over the opened dataset.
type Mapping struct {
	HZ      Rate                     `json:"hz,omitzero"`       // of the rows, where the format keeps no clock
	Clock   string                   `json:"clock,omitempty"`   // the anchor: a stream (source key or new key) whose rows are the episode's own
	Task    string                   `json:"task,omitempty"`    // a text stream (source key or new key) whose first non-empty value is the episode's task
	Streams map[string]StreamMapping `json:"streams"`           // new key → what it is made of
	Rest    string                   `json:"rest,omitempty"`    // streams that are not named: "keep" (default) or "drop"
	Options map[string]string        `json:"options,omitempty"` // OpenOptions.Options of the format
}

// StreamMapping is one stream made of others.
type StreamMapping struct {
	From          []string   `json:"from"`                     // source keys on one clock; several numeric ones are concatenated in this order
	Slice         []int      `json:"slice,omitempty"`          // [from, to) of the (flat) row
	Clock         string     `json:"clock,omitempty"`          // header | publish | log, or "timestamps:<key>": a numeric stream that holds the timestamps
	TimestampUnit string     `json:"timestamp_unit,omitempty"` // of such a stream: "s" (default), "ms", "us", "ns"
	Offset        int64      `json:"offset_ns,omitempty"`      // added to the timestamps
	Drift         Drift      `json:"drift,omitzero"`           // how fast the stream's clock runs, taken off ahead of Offset
	Scale         float64    `json:"scale,omitempty"`          // values × Scale (degrees → radians); 0 = 1
	Unit          string     `json:"unit,omitempty"`
	Interpolation string     `json:"interpolation,omitempty"`
	Rotations     []Rotation `json:"rotations,omitempty"` // channels that are rotations (of the joined, sliced row), interpolated as such; see Interpolation
	Relative      *Relative  `json:"relative,omitempty"`  // which channels (of the joined, sliced row) are relative; see Feature.Relative
	Names         []string   `json:"names,omitempty"`
	ChannelOrder  string     `json:"channel_order,omitempty"` // images: the order of their channels, "rgb" or "bgr"
}

// SourceKey returns the source key of the stream that the mapping makes under a new key: the first one of
// several. It returns name itself if the mapping makes no such stream. A stream of the dataset takes
// precedence over a new key: ask SourceKey only if the dataset has no stream of the name.
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
