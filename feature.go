package robocache

import (
	"encoding/json"
	"maps"
	"slices"
)

// Kind is what a stream carries.
type Kind string

const (
	KindNumeric    Kind = "numeric"
	KindImage      Kind = "image" // still images, one a row
	KindVideo      Kind = "video" // images inside video files
	KindPointCloud Kind = "pointcloud"
	KindText       Kind = "text"
	// JSON a row: language columns (a list of dicts), messages without members ({})
	KindEvent Kind = "event"
)

// Feature describes one stream of a dataset's schema.
type Feature struct {
	Key  string `json:"key"`
	Kind Kind   `json:"kind"`
	// of one element as stored: Uint8 for colour images, Uint16 for depth video
	DType DType           `json:"dtype"`
	Shape []int           `json:"shape"` // of one row as declared; [1] is a scalar column
	Names json.RawMessage `json:"names,omitempty"`
	// Images: size after names were consulted, whatever order the declaration has. 0 where nothing
	// says it.
	Height   int  `json:"height,omitempty"`
	Width    int  `json:"width,omitempty"`
	Channels int  `json:"channels,omitempty"`
	FPS      Rate `json:"fps,omitzero"`
	// as the file says (stsd), once a file was read; else as declared
	Codec string `json:"codec,omitempty"`
	Depth *Depth `json:"depth,omitempty"`
	// a bookkeeping column of the format (timestamp, index …)
	Default bool `json:"default,omitempty"`

	// Clock names the clock that the stream's rows are counted by: streams with one Clock have the
	// same timestamps and the same number of rows in every episode. "" is the episode's own clock,
	// that of Len and of Times("").
	Clock string `json:"clock,omitempty"`
	// Interpolation is the mode that suits the values where that does not follow from kind and
	// dtype: "slerp" for a quaternion (x, y, z, w), "angle", or "nearest" for a category kept in
	// numbers. "" leaves it to kind and dtype.
	Interpolation string `json:"interpolation,omitempty"`
	// Rotations are the channels that are rotations, under slerp: none = quaternions throughout.
	// Other channels are linear.
	Rotations []Rotation `json:"rotations,omitempty"`
	Unit      string     `json:"unit,omitempty"` // as the format or a mapping states it
	// some rows hold no value: see Capabilities.Valid
	Masked bool `json:"masked,omitempty"`
	// OnlyAsked reports that some episodes lack the stream (Capabilities.Lacks), and that it is
	// required only if it is asked for by its key: see WithoutUnasked.
	OnlyAsked bool `json:"only_asked,omitempty"`
	// Latched says that a value holds until the next one, the first also before it and the last to
	// the end: what is published once, and given to who comes later (ROS 2's /tf_static). Such a
	// stream bounds no timeline and has no gaps.
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
}

// fixed is where the dimensions that do not vary begin.
func (f *Feature) fixed() int {
	if f.Ragged() {
		return 1
	}
	return 0
}

// Ragged says that a row holds a varying number of elements: the first dimension of Shape is -1.
// Such rows are read by GatherRagged.
func (f *Feature) Ragged() bool { return len(f.Shape) > 0 && f.Shape[0] < 0 }

// Elements is the number of elements of one row; of a ragged one, of each of its entries (a point's
// channels).
func (f *Feature) Elements() int {
	n := 1
	for _, d := range f.Shape[f.fixed():] {
		n *= d
	}
	return n
}

// RowBytes is the size of one row of a numeric feature; 0 for text, images and ragged rows.
func (f *Feature) RowBytes() int {
	if f.Kind != KindNumeric || f.Ragged() {
		return 0
	}
	return f.Elements() * f.DType.Size()
}

// ChannelNames are the format's names of a row's elements, in whatever lists and objects they stand
// ({"motors": […]}); nil where it has none, or not one each.
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

// Scalar says that a row is one number: shape [1] or [].
func (f *Feature) Scalar() bool { return len(f.Shape) == 0 || len(f.Shape) == 1 && f.Shape[0] == 1 }

// DepthUnit is the unit in which depth is kept, "m" or "mm": of coded video that of its source. ""
// says that the stream is no depth, or is in some other unit.
func (f *Feature) DepthUnit() string {
	switch {
	case f.Depth != nil && f.Depth.Unit == "mm",
		f.Depth != nil && f.Depth.Unit == "" && f.DType == Uint16 && f.Kind == KindImage:
		return "mm"
	case f.Depth != nil:
		return "m"
	case f.Kind != KindImage || f.Channels != 1 || f.DType != Uint16 && f.DType != Float32:
		return ""
	case f.Unit == "m", f.Unit == "mm":
		return f.Unit
	case f.Unit == "" && f.DType == Float32:
		return "m"
	}
	return ""
}

// StateDepth states the unit of depth where a format does not: 16 bits are millimetres and floats
// metres, as everywhere in the field (REP 118).
func (f *Feature) StateDepth() {
	if f.Unit == "" && f.Depth == nil && f.Kind == KindImage && f.Channels == 1 &&
		f.DType == Uint16 {
		f.Unit = "mm"
	}
	if f.Unit == "" {
		f.Unit = f.DepthUnit()
	}
}

// Depth is the code of a depth video: q = round(4095·n), n = (ln(d+s)−ln(min+s)) /
// (ln(max+s)−ln(min+s)), or linear.
type Depth struct {
	Min   float64 `json:"depth_min"` // metres
	Max   float64 `json:"depth_max"`
	Shift float64 `json:"shift"`
	Log   bool    `json:"use_log"`
	Unit  string  `json:"depth_unit"` // of the source: "m" or "mm"
}
