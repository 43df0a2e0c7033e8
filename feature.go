package robocache

import (
	"encoding/json"
	"maps"
	"slices"
)

// Kind classifies the values of a stream.
type Kind string

const (
	KindNumeric    Kind = "numeric"
	KindImage      Kind = "image" // still images, one per row
	KindVideo      Kind = "video" // images inside video files
	KindPointCloud Kind = "pointcloud"
	KindText       Kind = "text"
	// KindEvent is JSON text in each row: language columns (a list of objects) and messages without
	// members ({}).
	KindEvent Kind = "event"
)

// Feature describes one stream of a dataset's schema.
type Feature struct {
	Key  string `json:"key"`
	Kind Kind   `json:"kind"`
	// DType is the type of one element as stored: Uint8 for colour images, Uint16 for depth video.
	DType DType           `json:"dtype"`
	Shape []int           `json:"shape"` // of one row as declared; [1] is a scalar column
	Names json.RawMessage `json:"names,omitempty"`
	// Height, Width and Channels describe images. Names decide the order of a declared shape. 0 is
	// unknown.
	Height   int  `json:"height,omitempty"`
	Width    int  `json:"width,omitempty"`
	Channels int  `json:"channels,omitempty"`
	FPS      Rate `json:"fps,omitzero"`
	// Codec is the codec that a file states (stsd), if a file was read, else the declared one.
	Codec string `json:"codec,omitempty"`
	Depth *Depth `json:"depth,omitempty"`
	// Default reports that the stream is a bookkeeping column of the format (timestamp, index …).
	Default bool `json:"default,omitempty"`

	// Clock names the clock of the stream's rows. Streams with the same clock have the same
	// timestamps and the same number of rows in every episode. "" is the clock of the episode's
	// rows, which Len and Times("") use.
	Clock string `json:"clock,omitempty"`
	// Interpolation is the mode that suits the values, if it does not follow from kind and dtype:
	// "slerp" for a quaternion (x, y, z, w), "angle", or "nearest" for a category kept as numbers.
	// If it is empty, kind and dtype decide.
	Interpolation string `json:"interpolation,omitempty"`
	// Rotations are the channels that are rotations, for mode slerp. If it is empty, all channels
	// are quaternions. Other channels are interpolated linearly.
	Rotations []Rotation `json:"rotations,omitempty"`
	Unit      string     `json:"unit,omitempty"` // as the format or a mapping states it
	// Masked reports that some rows hold no value: see Capabilities.Valid.
	Masked bool `json:"masked,omitempty"`
	// OnlyAsked reports that some episodes lack the stream (Capabilities.Lacks), and that it is
	// required only if it is asked for by its key: see WithoutUnasked.
	OnlyAsked bool `json:"only_asked,omitempty"`
	// Latched reports that a value holds until the next one. The first value also holds before its
	// time, and the last one to the end, as of a topic that is published once (ROS 2's /tf_static).
	// Such a stream bounds no timeline and has no gaps.
	Latched bool `json:"latched,omitempty"`
	// Relative lists the channels that are relative (see type Relative), in ascending order, as the
	// dataset or a mapping states it. nil: nothing is stated; empty: the stream is absolute.
	Relative []int `json:"relative,omitzero"`
	// RelativeReason states how Relative is known, for messages: "modality.json says so".
	RelativeReason string `json:"relative_reason,omitempty"`
	// Unsummable lists the channels of rotations whose differences are no rotations and do not add
	// up: quaternions, matrices, and six numbers of a matrix. If they are relative, mode sum is
	// refused.
	Unsummable []int `json:"unsummable,omitempty"`
	// Computed reports that the reader computes the stream from another column of the dataset. A
	// writer that stores that column leaves the stream out.
	Computed bool `json:"computed,omitempty"`
	// Derived is the hash of the values of a stream that a user computed. "" is a recorded stream.
	Derived string `json:"derived,omitempty"`
}

// fixedDims returns the number of the first dimension of Shape that does not vary.
func (f *Feature) fixedDims() int {
	if f.Ragged() {
		return 1
	}
	return 0
}

// Ragged reports whether rows hold a varying number of elements: the first dimension of Shape is
// -1. GatherRagged reads such rows.
func (f *Feature) Ragged() bool { return len(f.Shape) > 0 && f.Shape[0] < 0 }

// Elements returns the number of elements of one row. For a ragged feature it is the number of
// elements of one entry, such as the channels of a point.
func (f *Feature) Elements() int {
	n := 1
	for _, d := range f.Shape[f.fixedDims():] {
		n *= d
	}
	return n
}

// RowBytes returns the size in bytes of one row of a numeric feature. It is 0 for text, images and
// ragged rows.
func (f *Feature) RowBytes() int {
	if f.Kind != KindNumeric || f.Ragged() {
		return 0
	}
	return f.Elements() * f.DType.Size()
}

// ChannelNames returns the names of a row's elements, from any nesting of lists and objects in
// Names ({"motors": […]}). It returns nil unless there is one name for each element.
func (f *Feature) ChannelNames() (out []string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(v[k])
			}
		}
	}
	var tree any
	if json.Unmarshal(f.Names, &tree) == nil {
		walk(tree)
	}
	if len(out) != f.Elements() {
		return nil
	}
	return out
}

// Scalar reports whether a row is one number: its shape is [1] or [].
func (f *Feature) Scalar() bool { return len(f.Shape) == 0 || len(f.Shape) == 1 && f.Shape[0] == 1 }

// DepthUnit returns the unit of stored depth, "m" or "mm". For coded video it is the unit of the
// source. It returns "" if the stream is no depth or has another unit.
func (f *Feature) DepthUnit() string {
	if f.Depth != nil {
		if f.Depth.Unit == "mm" ||
			f.Depth.Unit == "" && f.DType == Uint16 && f.Kind == KindImage {
			return "mm"
		}
		return "m"
	}
	switch {
	case f.Kind != KindImage || f.Channels != 1 || f.DType != Uint16 && f.DType != Float32:
		return ""
	case f.Unit == "m", f.Unit == "mm":
		return f.Unit
	case f.Unit == "" && f.DType == Float32:
		return "m"
	}
	return ""
}

// StateDepth sets the unit of depth if the format does not state one. 16 bits are millimetres and
// floats are metres, by the convention of REP 118.
func (f *Feature) StateDepth() {
	if f.Unit == "" && f.Depth == nil && f.Kind == KindImage && f.Channels == 1 &&
		f.DType == Uint16 {
		f.Unit = "mm"
	}
	if f.Unit == "" {
		f.Unit = f.DepthUnit()
	}
}

// Depth describes how a depth video codes a depth d in metres as a number q of 12 bits, with
// s = Shift: q = round(4095·n), where n = (ln(d+s)−ln(min+s)) / (ln(max+s)−ln(min+s)) if Log is
// set, else n = (d−min) / (max−min).
type Depth struct {
	Min   float64 `json:"depth_min"` // metres
	Max   float64 `json:"depth_max"`
	Shift float64 `json:"shift"`
	Log   bool    `json:"use_log"`
	Unit  string  `json:"depth_unit"` // of the source: "m" or "mm"
}
