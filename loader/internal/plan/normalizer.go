package plan

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/vector"
)

// Normalizer describes the normalization of the keys of one source. It is small and readable, so
// that values can be normalized and restored without a dataset (Python: Loader.normalizer).
type Normalizer struct {
	Name string            `json:"name,omitempty"` // of a mixture's source
	Keys map[string]Normed `json:"keys"`
	// Vectors describes the vectors, by the key of the batch.
	Vectors map[string]VectorState `json:"vectors,omitempty"`
}

// Normed describes the normalization of one key: (x-shift)/scale for mean_std, else
// 2(x-shift)/scale-1, and 0 if scale is 0. The arithmetic is float32, or float64 for float64
// values. Shift and Scale have one number per channel of an image. Otherwise they have one per
// number of a row, or of a part of it that repeats.
type Normed struct {
	Mode  string    `json:"mode"`
	Clip  bool      `json:"clip,omitempty"` // limit the result to [-1, 1]
	Shift []float32 `json:"shift"`
	Scale []float32 `json:"scale"`
	// of a row or of an entry of a ragged key; for an image its channels
	Shape  []int `json:"shape"`
	Image  bool  `json:"image,omitempty"`
	Double bool  `json:"double,omitempty"` // computed in float64
	// the channels of an image are its last axis
	ChannelsLast bool            `json:"channels_last,omitempty"`
	DType        robocache.DType `json:"dtype"` // of the result
	// positions of the row's numbers in a padded row, if a mixture pads it
	Dims  []int `json:"dims,omitempty"`
	Width int   `json:"width,omitempty"` // number of numbers of the padded row
}

// VectorState describes how a vector is made of columns as stored.
type VectorState struct {
	Parts  []vector.State  `json:"parts"`
	Rows   int             `json:"rows"` // 0: the vector has no axis of rows
	Length int             `json:"length"`
	Width  int             `json:"width"`
	DType  robocache.DType `json:"dtype"`
}

// Normalizers describes the normalization of each source.
func (p *Plan) Normalizers() []Normalizer {
	out := make([]Normalizer, len(p.Sources))
	for i, src := range p.Sources {
		out[i] = Normalizer{Name: src.Name, Keys: map[string]Normed{}}
		for _, c := range src.Columns {
			if v, ok := c.Kind.(*column.VectorColumn); ok {
				out[i].addVector(v)
				continue
			}
			f := c.Normalization()
			if f == nil {
				continue
			}
			n := Normed{
				DType:  c.DeliveredDType(),
				Mode:   f.Mode,
				Clip:   f.Clip,
				Shift:  f.A,
				Scale:  f.B,
				Shape:  []int{},
				Image:  !c.HasNumbers(),
				Double: c.HasNumbers() && c.StoredDType == robocache.Float64,
			}
			switch {
			case n.Image:
				n.Shape = []int{column.Channels(c.Image().Spec.Pixel)}
				n.ChannelsLast = c.Image().IsChannelsLast
			case column.Is[*column.CloudColumn](c):
				n.Shape = c.Feature.Shape[1:]
			case !c.Feature.Scalar():
				n.Shape = c.Feature.Shape
			}
			if padded := src.PaddedRows[c.Key]; padded != nil {
				n.Dims, n.Width = padded.Places, padded.Width
			}
			out[i].Keys[c.Key] = n
		}
	}
	return out
}

// addVector adds the description of a vector.
func (n *Normalizer) addVector(c *column.VectorColumn) {
	v := VectorState{
		Length: c.Steps,
		Width:  c.Elements,
		DType:  c.OutDType,
		Rows:   len(c.Options.Rows),
	}
	for _, p := range c.Parts {
		v.Parts = append(v.Parts, p.State())
	}
	if n.Vectors == nil {
		n.Vectors = map[string]VectorState{}
	}
	n.Vectors[c.Key] = v
}

// SettledNormalize returns the normalization of each source with the statistics that it uses. A
// loader with these options computes no statistics.
func (p *Plan) SettledNormalize() []options.Normalize {
	out := make([]options.Normalize, len(p.Sources))
	for i, src := range p.Sources {
		if src.Config.Normalize.IsZero() {
			continue
		}
		out[i].Keys = map[string]options.Norm{}
		for _, c := range src.Columns {
			f := c.Normalization()
			switch {
			case f == nil:
			case f.Mode == "mean_std":
				out[i].Keys[c.Key] = options.Norm{Mode: f.Mode, Mean: f.Low, Std: f.High}
			default:
				out[i].Keys[c.Key] = options.Norm{
					Mode: f.Mode,
					Clip: f.Clip,
					Low:  f.Low,
					High: f.High,
				}
			}
		}
	}
	return out
}
