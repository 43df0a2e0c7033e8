package plan

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// Normalizer is what normalising did to the keys of one source, small and readable, so that it can be done and undone where there is no
// dataset (Python: Loader.normalizer).
type Normalizer struct {
	Name string            `json:"name,omitempty"` // of a mixture's source
	Keys map[string]Normed `json:"keys"`
}

// Normed is how one key is normalised: (x-shift)/scale of mean_std, else 2(x-shift)/scale-1; where scale is 0, 0. All in float32, float64
// values in float64. Shift and Scale are one a channel of an image, else one a number of the row, or of a part of it that repeats.
type Normed struct {
	Mode   string          `json:"mode"`
	Clip   bool            `json:"clip,omitempty"` // to [-1, 1] in the end
	Shift  []float32       `json:"shift"`
	Scale  []float32       `json:"scale"`
	Shape  []int           `json:"shape"` // of a row, of an entry where rows vary in length; of an image its channels
	Image  bool            `json:"image,omitempty"`
	Double bool            `json:"double,omitempty"` // computed in float64
	DType  robocache.DType `json:"dtype"`            // of the result
	Dims   []int           `json:"dims,omitempty"`   // where the row's numbers stand in the batch's, of so many …
	Width  int             `json:"width,omitempty"`  // … where a mixture pads it
}

// Normalizers says how the keys of each source are normalised.
func (p *Plan) Normalizers() []Normalizer {
	out := make([]Normalizer, len(p.Sources))
	for i, src := range p.Sources {
		out[i] = Normalizer{Name: src.Name, Keys: map[string]Normed{}}
		for _, c := range src.Columns {
			f := c.Normalization()
			if f == nil {
				continue
			}
			n := Normed{DType: c.DeliveredDType(), Mode: f.Mode, Clip: f.Clip, Shift: f.A, Scale: f.B, Shape: []int{}, Image: !c.HasNumbers(), Double: c.HasNumbers() && c.StoredDType == robocache.Float64}
			switch {
			case n.Image:
				n.Shape = []int{column.Channels(c.Image().Spec.Pixel)}
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

// SettledNormalize is the normalisation of each source with its vectors: with it a loader is made again, without computing them again.
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
				out[i].Keys[c.Key] = options.Norm{Mode: f.Mode, Clip: f.Clip, Low: f.Low, High: f.High}
			}
		}
	}
	return out
}
