package loader

import "github.com/goatnote-inc/robocache"

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

// normalizers says how the keys of each source are normalised.
func (a *assembler) normalizers() []Normalizer {
	out := make([]Normalizer, len(a.sources))
	for i, src := range a.sources {
		out[i] = Normalizer{Name: src.name, Keys: map[string]Normed{}}
		for _, c := range src.columns {
			f := c.normal()
			if f == nil {
				continue
			}
			n := Normed{DType: c.given(), Mode: f.mode, Clip: f.clip, Shift: f.A, Scale: f.B, Shape: []int{}, Image: !c.numbers(), Double: c.numbers() && c.stored == robocache.Float64}
			switch {
			case n.Image:
				n.Shape = []int{channels(c.image().spec.Pixel)}
			case is[*cloudColumn](c):
				n.Shape = c.feature.Shape[1:]
			case !c.feature.Scalar():
				n.Shape = c.feature.Shape
			}
			if p := src.pads[c.key]; p != nil {
				n.Dims, n.Width = p.dims, p.width
			}
			out[i].Keys[c.key] = n
		}
	}
	return out
}

// settled is the normalisation of each source with its vectors: with it a loader is made again, without computing them again.
func (a *assembler) settled() []Normalize {
	out := make([]Normalize, len(a.sources))
	for i, src := range a.sources {
		if src.cfg.Normalize.IsZero() {
			continue
		}
		out[i].Keys = map[string]Norm{}
		for _, c := range src.columns {
			f := c.normal()
			switch {
			case f == nil:
			case f.mode == "mean_std":
				out[i].Keys[c.key] = Norm{Mode: f.mode, Mean: f.low, Std: f.high}
			default:
				out[i].Keys[c.key] = Norm{Mode: f.mode, Clip: f.clip, Low: f.low, High: f.high}
			}
		}
	}
	return out
}

// Normalizers says how the keys of each source are normalised.
func (l *Loader) Normalizers() []Normalizer { return l.a.normalizers() }

// Settled is the normalisation of each source with its vectors.
func (l *Loader) Settled() []Normalize { return l.a.settled() }

// Normalizers says how keys are normalised.
func (m *Map) Normalizers() []Normalizer { return m.a.normalizers() }

// Settled is the normalisation with its vectors.
func (m *Map) Settled() []Normalize { return m.a.settled() }
