package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/video"
)

// Normalize says which keys are normalised and how. One mode for all means: the float features that have statistics, without
// bookkeeping columns and pictures; a key that is named is normalised or refused.
type Normalize struct {
	Mode string
	Keys map[string]Norm
}

// Norm is how one key is normalised. Without vectors of its own the dataset's statistics are taken.
type Norm struct {
	Mode string    `json:"mode"`           // "mean_std" | "min_max" | "quantiles" (q01, q99) | "quantile10" (q10, q90)
	Clip bool      `json:"clip,omitempty"` // to [-1, 1]; not for mean_std
	Mean []float64 `json:"mean,omitempty"`
	Std  []float64 `json:"std,omitempty"`
	Low  []float64 `json:"low,omitempty"` // min, q01 or q10
	High []float64 `json:"high,omitempty"`
}

// IsZero lets JSON leave it out.
func (n Normalize) IsZero() bool { return n.Mode == "" && len(n.Keys) == 0 }

// UnmarshalJSON reads a mode, or {key: mode or {mode, clip, mean, std, low, high}}.
func (n *Normalize) UnmarshalJSON(b []byte) error {
	*n = Normalize{}
	if string(b) == "null" || string(b) == "false" {
		return nil
	}
	if json.Unmarshal(b, &n.Mode) == nil {
		return nil
	}
	n.Keys = map[string]Norm{}
	return orderedObject(b, "normalize", func(key string, raw json.RawMessage) error {
		var one Norm
		if json.Unmarshal(raw, &one.Mode) != nil {
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.DisallowUnknownFields() // "means" passed over would be the dataset's own statistics, silently
			if err := dec.Decode(&one); err != nil {
				return misuse("normalize", "a mode, or {mode, clip, mean, std, low, high} for "+key, clip(string(raw)))
			}
		}
		n.Keys[key] = one
		return nil
	})
}

// MarshalJSON writes what UnmarshalJSON reads.
func (n Normalize) MarshalJSON() ([]byte, error) {
	if n.Keys != nil {
		return json.Marshal(n.Keys)
	}
	return json.Marshal(n.Mode)
}

// affine is a normalisation ready to run: kernel.Norm's arithmetic (K10) over repeating columns.
type affine struct {
	kernel.Norm
	clip bool
}

// Inverse is how a normalised value is turned back: x = y·Scale + Shift, a column each. Constant columns have Scale 0.
type Inverse struct {
	Mode  string    `json:"mode"`
	Scale []float64 `json:"scale"`
	Shift []float64 `json:"shift"`
}

// normalizers settles which columns are normalised, and with what.
func (src *source) normalizers(ctx context.Context) error {
	n := &src.cfg.Normalize
	if n.IsZero() {
		return nil
	}
	var stats robocache.Stats
	load := func() error {
		if stats != nil {
			return nil
		}
		s, err := src.ds.Stats(ctx)
		if s == nil {
			s = robocache.Stats{}
		}
		stats = s
		return err
	}
	seen := 0
	var constant []string
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.feature == nil || c.when {
			continue
		}
		norm, named := n.Keys[c.key]
		if named {
			seen++
		} else {
			norm = Norm{Mode: n.Mode}
			if n.Mode == "" || c.feature.Default || c.source != fromTable || !c.stored.Float() {
				continue
			}
		}
		if err := normalizable(c); err != nil {
			return err
		}
		if norm.own() == nil {
			if err := load(); err != nil {
				return err
			}
		}
		low, high, err := norm.vectors(c, stats[c.key])
		if err != nil {
			if !named && low == nil {
				continue // "all that have statistics"
			}
			return err
		}
		f := &affine{clip: norm.Clip && norm.Mode != "mean_std"}
		if norm.Mode == "mean_std" {
			f.Norm = *kernel.NewMeanStd(low, high)
		} else {
			f.Norm = *kernel.NewMinMax(low, high)
		}
		for k, b := range f.B {
			if b == 0 {
				constant = append(constant, fmt.Sprintf("%s[%d]", c.key, k))
			}
		}
		c.norm = f
		if c.numbers() && c.out != robocache.Float64 {
			src.retype(i, robocache.Float32)
		}
	}
	if seen < len(n.Keys) {
		for k := range n.Keys {
			if !src.layout.has(k) {
				return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": k}, Msg: "normalize: no tensor of that key", Hint: nearest(k, src.layout.keys())}
			}
		}
	}
	if len(constant) > 0 {
		sort.Strings(constant)
		if len(constant) > 16 {
			constant = append(constant[:16], "…")
		}
		src.a.warn("constant columns are normalised to 0: " + strings.Join(constant, ", "))
	}
	return nil
}

func normalizable(c *column) error {
	bad := func(msg, hint string) error {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "normalize: " + msg, Hint: hint}
	}
	switch {
	case c.source == fromText:
		return bad("a text", "")
	case c.numbers() && !c.stored.Float():
		return bad(c.stored.String()+" values are left as they are", "name float features only")
	case !c.numbers() && c.out != robocache.Float32:
		return bad("pictures are "+c.out.String(), `image_dtype="float32"`)
	}
	return nil
}

// numbers says that the column's rows are numbers, a point cloud's too, and no pictures.
func (c *column) numbers() bool { return c.source == fromTable || c.source == fromRagged }

// own gives the vectors that the configuration brings.
func (n *Norm) own() [][]float64 {
	if n.Mode == "mean_std" {
		if n.Mean != nil || n.Std != nil {
			return [][]float64{n.Mean, n.Std}
		}
		return nil
	}
	if n.Low != nil || n.High != nil {
		return [][]float64{n.Low, n.High}
	}
	return nil
}

// vectors gives mean and std, or low and high, of a column. Where the dataset has none, low is nil beside the error.
func (n *Norm) vectors(c *column, s *robocache.FeatureStats) (low, high []float64, err error) {
	fail := func(msg string) ([]float64, []float64, error) {
		return nil, nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "normalize: " + msg, Hint: "count them and give stats=: dataset.compute_stats(), or the file of robocache stats URI --out FILE; or give the vectors: {\"mode\": …, \"mean\": […], \"std\": […]}"}
	}
	if own := n.own(); own != nil {
		low, high = own[0], own[1]
	} else if c.spec.Pixel == video.DepthMM || c.spec.Pixel == video.DepthM {
		return fail("depth needs vectors in its own unit")
	} else if s == nil {
		return fail("the dataset has no statistics of it")
	}
	switch n.Mode {
	case "mean_std":
		if low == nil && s != nil {
			low, high = s.Mean, s.Std
		}
	case "min_max":
		if low == nil && s != nil {
			low, high = s.Min, s.Max
		}
	case "quantiles":
		if low == nil && s != nil {
			low, high = s.Quantiles["q01"], s.Quantiles["q99"]
		}
	case "quantile10":
		if low == nil && s != nil {
			low, high = s.Quantiles["q10"], s.Quantiles["q90"]
		}
	}
	if len(low) == 0 || len(low) != len(high) {
		return fail("no " + n.Mode + " statistics")
	}
	per := c.elems
	if !c.numbers() {
		per = channels(c.spec.Pixel)
		if len(low) != per && len(low) != 1 {
			return []float64{}, nil, misuse("normalize "+c.key, fmt.Sprintf("%d channels", per), fmt.Sprint(len(low)))
		}
	} else if per%len(low) != 0 {
		return []float64{}, nil, misuse("normalize "+c.key, fmt.Sprintf("statistics of %v", c.feature.Shape), fmt.Sprintf("%d numbers", len(low)))
	}
	for i := range low {
		if math.IsNaN(low[i]) || math.IsNaN(high[i]) {
			return []float64{}, nil, misuse("normalize "+c.key, "finite statistics", "NaN")
		}
	}
	return low, high, nil
}

// check refuses modes that there are not, whether or not a column would come to use them.
func (n *Normalize) check() error {
	known := func(mode string) bool {
		return mode == "mean_std" || mode == "min_max" || mode == "quantiles" || mode == "quantile10"
	}
	bad := func(mode string) error {
		return misuse("normalize", "mean_std, min_max, quantiles or quantile10", mode)
	}
	if n.Mode != "" && !known(n.Mode) {
		return bad(n.Mode)
	}
	for _, k := range mapKeys(n.Keys) {
		if mode := n.Keys[k].Mode; !known(mode) {
			return bad(k + ": " + strconv.Quote(mode))
		}
	}
	return nil
}

// retype changes the dtype of a numeric column's tensor.
func (src *source) retype(i int, d robocache.DType) {
	l := src.layout
	c := &l.columns[i]
	c.out = d
	c.outBytes = c.elems * d.Size()
	t := &l.tensors[c.entry]
	t.dtype = d
	if !t.ragged {
		t.bytes = c.steps * c.outBytes
	}
	for k := range l.fields {
		if l.fields[k].Key == c.key {
			l.fields[k].DType = d
		}
	}
}

// inverses says how each normalised key is turned back.
// A mixture normalises each source by its own statistics: its keys are "name/key".
func (a *assembler) inverses() map[string]Inverse {
	if len(a.sources) == 1 {
		return a.sources[0].inverses()
	}
	out := map[string]Inverse{}
	for _, src := range a.sources {
		for k, v := range src.inverses() {
			out[src.name+"/"+k] = v
		}
	}
	return out
}

func (src *source) inverses() map[string]Inverse {
	out := map[string]Inverse{}
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		norm := c.normal()
		if norm == nil {
			continue
		}
		v := Inverse{Mode: "min_max"}
		for k, b := range norm.B {
			scale, shift := float64(b), float64(norm.A[k])
			if norm.Kind == kernel.MeanStd {
				v.Mode = "mean_std"
			} else if b != 0 {
				scale, shift = scale/2, shift+scale/2
			}
			v.Scale, v.Shift = append(v.Scale, scale), append(v.Shift, shift)
		}
		out[c.key] = v
	}
	return out
}

var unitRange = [2]float32{-1, 1}

// epilogue is what a kernel does: columns repeat with the statistics' length, or by planes (channels first); 0: no planes.
func (f *affine) epilogue(plane int) kernel.Epilogue {
	if f == nil {
		return kernel.Epilogue{}
	}
	e := kernel.Epilogue{Norm: &f.Norm, Plane: plane}
	if f.clip {
		e.Clip = &unitRange
	}
	return e
}
