package plan

import (
	"github.com/goatnote-inc/robocache"
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
