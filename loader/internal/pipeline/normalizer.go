package pipeline

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
)

// Normalizers says how the keys of each source are normalised.
func (a *Assembler) Normalizers() []plan.Normalizer {
	out := make([]plan.Normalizer, len(a.Sources))
	for i, src := range a.Sources {
		out[i] = plan.Normalizer{Name: src.Name, Keys: map[string]plan.Normed{}}
		for _, c := range src.Columns {
			f := c.Normalization()
			if f == nil {
				continue
			}
			n := plan.Normed{DType: c.DeliveredDType(), Mode: f.Mode, Clip: f.Clip, Shift: f.A, Scale: f.B, Shape: []int{}, Image: !c.HasNumbers(), Double: c.HasNumbers() && c.StoredDType == robocache.Float64}
			switch {
			case n.Image:
				n.Shape = []int{column.Channels(c.Image().Spec.Pixel)}
			case column.Is[*column.CloudColumn](c):
				n.Shape = c.Feature.Shape[1:]
			case !c.Feature.Scalar():
				n.Shape = c.Feature.Shape
			}
			if p := src.PaddedRows[c.Key]; p != nil {
				n.Dims, n.Width = p.Places, p.Width
			}
			out[i].Keys[c.Key] = n
		}
	}
	return out
}

// SettledNormalize is the normalisation of each source with its vectors: with it a loader is made again, without computing them again.
func (a *Assembler) SettledNormalize() []options.Normalize {
	out := make([]options.Normalize, len(a.Sources))
	for i, src := range a.Sources {
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
