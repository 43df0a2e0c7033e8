package stats

import (
	"context"
	"encoding/json"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Part is the statistics of some rows of a feature in a form that merges: parts of any split of the rows give the same counts and extremes, and
// the same mean and deviation to rounding (S6). Quantiles of images are exact, for every level is counted.
// Those of numbers are read off what each part knows of its own distribution (points): of no part they are further off, in rank, than the points are apart.
type Part struct {
	Count     int64            `json:"count"`
	Shape     []int            `json:"shape"`
	N         []int64          `json:"n,omitempty"` // finite values of each column
	Min       []float64        `json:"min,omitempty"`
	Max       []float64        `json:"max,omitempty"`
	Mean      []float64        `json:"mean,omitempty"`
	M2        []float64        `json:"m2,omitempty"`
	Points    [][]float64      `json:"points,omitempty"` // of each column: its values at the ranks of points, from each part
	Weights   []int64          `json:"-"`
	NonFinite int64            `json:"non_finite,omitempty"`
	Levels    json.RawMessage  `json:"levels,omitempty"` // images: of a Pixels
	Wide      bool             `json:"wide,omitempty"`   // of 16 bits
	Code      *robocache.Depth `json:"depth,omitempty"`
}

// Parts gives the statistics of everything added, in a form that merges.
func (c *Collector) Parts(ctx context.Context) (map[string]*Part, error) {
	all, left, err := c.Stats(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]*Part{}
	for key, fs := range all {
		p := &Part{Count: fs.Count, Shape: fs.Shape, Min: fs.Min, Max: fs.Max, Mean: fs.Mean, NonFinite: left[key]}
		for c := range fs.Mean {
			p.N = append(p.N, fs.Count)
			p.M2 = append(p.M2, fs.Std[c]*fs.Std[c]*float64(fs.Count))
		}
		out[key] = p
	}
	return out, nil
}

// Part gives what was counted in a form that merges.
func (p *Pixels) Part() (*Part, error) {
	b, err := json.Marshal(p)
	return &Part{Count: p.Frames, Shape: []int{len(p.hist), 1, 1}, Levels: b, Wide: len(p.value) > 256, Code: p.code}, err
}

func (p *Part) pixels() (*Pixels, error) {
	c := NewPixels(p.Shape[0])
	if p.Wide {
		c = NewDepth(p.Code)
	}
	return c, json.Unmarshal(p.Levels, c)
}

// Merge adds other rows of the feature.
func (p *Part) Merge(o *Part) error {
	if !slices.Equal(p.Shape, o.Shape) || len(p.Shape) == 0 || len(p.Mean) != len(o.Mean) || (p.Levels == nil) != (o.Levels == nil) || p.Wide != o.Wide {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "statistics", Msg: "parts of different features"}
	}
	p.Count, p.NonFinite = p.Count+o.Count, p.NonFinite+o.NonFinite
	if p.Levels != nil {
		a, err := p.pixels()
		if err == nil {
			err = json.Unmarshal(o.Levels, a)
		}
		if err == nil {
			p.Levels, err = json.Marshal(a)
		}
		return err
	}
	for c := range p.Mean {
		n, k := float64(p.N[c]), float64(o.N[c])
		if k == 0 {
			continue
		}
		d := o.Mean[c] - p.Mean[c]
		p.N[c] += o.N[c]
		p.Min[c], p.Max[c] = min(p.Min[c], o.Min[c]), max(p.Max[c], o.Max[c])
		p.Mean[c] += float64(d * (k / (n + k)))
		p.M2[c] += o.M2[c] + float64(d*d*(n*k/(n+k)))
	}
	return nil
}

// Stats are the statistics of all rows.
func (p *Part) Stats() *robocache.FeatureStats {
	if p.Levels != nil {
		if px, err := p.pixels(); err == nil {
			return px.Stats()
		}
		return nil
	}
	fs := &robocache.FeatureStats{Count: p.Count, Shape: p.Shape, Min: p.Min, Max: p.Max, Mean: p.Mean}
	for c, m2 := range p.M2 {
		fs.Std = append(fs.Std, math.Sqrt(max(0, m2)/float64(max(1, p.N[c]))))
	}
	return fs
}
