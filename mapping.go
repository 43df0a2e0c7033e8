package robocache

// Mapping states properties of a dataset that its format leaves open: the streams, their names,
// clocks and units. Package mapping reads it from YAML. A reader applies the parts that concern its
// format. Package mapping applies the rest to the opened dataset.
type Mapping struct {
	// HZ is the rate of the rows, if the format has no timestamps.
	HZ Rate `json:"hz,omitzero"`
	// Clock is the stream, by source key or new key, whose rows are the rows of the episode.
	Clock string `json:"clock,omitempty"`
	// Task is a text stream, by source key or new key. Its first value that is not empty is the task
	// of the episode.
	Task string `json:"task,omitempty"`
	// Streams maps a new key to the source of the stream.
	Streams map[string]StreamMapping `json:"streams"`
	// Rest is the treatment of streams that Streams does not name: "keep" (default) or "drop".
	Rest    string            `json:"rest,omitempty"`
	Options map[string]string `json:"options,omitempty"` // OpenOptions.Options of the format
}

// StreamMapping describes one new stream by its source streams.
type StreamMapping struct {
	// From are source keys with the same clock. Several numeric streams are concatenated in this
	// order.
	From []string `json:"from"`
	// Slice is [from, to) of the elements of a concatenated row.
	Slice []int `json:"slice,omitempty"`
	// Clock is header, publish or log, or "timestamps:<key>" for a numeric stream that holds the
	// timestamps.
	Clock string `json:"clock,omitempty"`
	// TimestampUnit is the unit of that stream: "s" (default), "ms", "us" or "ns".
	TimestampUnit string `json:"timestamp_unit,omitempty"`
	Offset        int64  `json:"offset_ns,omitempty"` // added to the timestamps
	// Drift of the stream's clock is corrected before Offset is added.
	Drift Drift `json:"drift,omitzero"`
	// Scale multiplies the values, for example to convert degrees to radians. 0 is 1.
	Scale         float64 `json:"scale,omitempty"`
	Unit          string  `json:"unit,omitempty"`
	Interpolation string  `json:"interpolation,omitempty"`
	// Rotations are the channels of the sliced row that are rotations: see Feature.Rotations.
	Rotations []Rotation `json:"rotations,omitempty"`
	// Relative states which channels of the sliced row are relative: see Feature.Relative.
	Relative *Relative `json:"relative,omitempty"`
	Names    []string  `json:"names,omitempty"`
	// ChannelOrder is the order of the channels of images, "rgb" or "bgr".
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

// formatOptions returns the options of the mapping for the format. m may be nil.
func (m *Mapping) formatOptions() map[string]string {
	if m == nil {
		return nil
	}
	return m.Options
}
