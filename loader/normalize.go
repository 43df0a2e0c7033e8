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

// Normalize says which keys are normalised and how. One mode for all means: every float feature, without bookkeeping columns
// (Feature.Default, and those named timestamp), images and rows of varying length; integers and booleans stay as they are. What is meant is normalised or refused: statistics
// that the dataset lacks are computed at opening where the pass is small, or where Config.ComputeStats asks for it (statistics.go).
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
	clip      bool
	mode      string    // as it was asked for
	low, high []float64 // what Norm was made of: mean and std, or the ends
}

// normalizers settles which columns are normalised, and with what.
func (src *source) normalizers(ctx context.Context) error {
	n := &src.cfg.Normalize
	if n.IsZero() {
		return nil
	}
	var all []normalized
	seen := 0
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
			if n.Mode == "" || c.bookkeeping() || c.source != fromTable || !c.stored.Float() {
				continue
			}
		}
		if err := normalizable(c); err != nil {
			return err
		}
		all = append(all, normalized{c, norm})
	}
	if seen < len(n.Keys) {
		for k := range n.Keys {
			if !src.layout.has(k) {
				return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": k}, Msg: "normalize: no tensor of that key", Hint: nearest(k, src.layout.keys())}
			}
		}
	}
	if len(all) == 0 && n.Mode != "" {
		src.log("normalize=%q changes nothing: none of %s is a float feature that one word applies to; name keys: normalize={key: mode}", n.Mode, strings.Join(src.layout.keys(), ", "))
	}
	stats, err := src.statistics(ctx, all)
	if err != nil {
		return err
	}
	var constant []string
	for _, c := range all {
		low, high, err := c.norm.vectors(c.column, stats[c.key])
		if err != nil {
			return err
		}
		f := &affine{clip: c.norm.Clip && c.norm.Mode != "mean_std", mode: c.norm.Mode, low: low, high: high}
		if c.norm.Mode == "mean_std" {
			f.Norm = *kernel.NewMeanStd(low, high)
		} else {
			f.Norm = *kernel.NewMinMax(low, high)
		}
		for k, b := range f.B {
			if b == 0 {
				constant = append(constant, fmt.Sprintf("%s[%d]", c.key, k))
			}
		}
		c.column.norm = f
		if c.numbers() && c.out != robocache.Float64 {
			src.retype(c.number, robocache.Float32)
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

// bookkeeping says that a column holds what a format counts by: Feature.Default, and times where a format does not mark them.
func (c *column) bookkeeping() bool {
	name := c.feature.Key[strings.LastIndexAny(c.feature.Key, "./")+1:]
	return c.feature.Default || name == "timestamp" || name == "timestamps"
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
		return bad("frames are "+c.out.String(), `image_dtype="float32"`)
	}
	return nil
}

// numbers says that the column's rows are numbers, a point cloud's too, and no frames.
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

// of finds the mode's vectors in statistics; nil where they are not there.
func (n *Norm) of(s *robocache.FeatureStats) (low, high []float64) {
	switch n.Mode {
	case "mean_std":
		return s.Mean, s.Std
	case "min_max":
		return s.Min, s.Max
	case "quantiles":
		return s.Quantiles["q01"], s.Quantiles["q99"]
	case "quantile10":
		return s.Quantiles["q10"], s.Quantiles["q90"]
	}
	return nil, nil
}

func (n *Norm) in(s *robocache.FeatureStats) bool {
	low, high := n.of(s)
	return len(low) > 0 && len(low) == len(high)
}

// isDepth says that the column is depth: its statistics would be of another unit.
func (c *column) isDepth() bool { return c.spec.Pixel == video.DepthMM || c.spec.Pixel == video.DepthM }

// vectors gives mean and std, or low and high, of a column.
func (n *Norm) vectors(c *column, s *robocache.FeatureStats) (low, high []float64, err error) {
	fail := func(msg string) ([]float64, []float64, error) {
		return nil, nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "normalize: " + msg, Hint: `stats="compute" computes them at opening; ` + otherWays}
	}
	if own := n.own(); own != nil {
		low, high = own[0], own[1]
	} else if c.isDepth() {
		return fail("depth needs vectors in its own unit")
	} else if s == nil {
		return fail("there are no statistics of " + c.key)
	} else {
		low, high = n.of(s)
	}
	if len(low) == 0 || len(low) != len(high) {
		return fail("no " + n.Mode + " statistics of " + c.key)
	}
	per := c.elems
	if !c.numbers() {
		per = channels(c.spec.Pixel)
		if len(low) != per && len(low) != 1 {
			return nil, nil, misuse("normalize "+c.key, fmt.Sprintf("%d channels", per), fmt.Sprint(len(low)))
		}
	} else if per%len(low) != 0 {
		return nil, nil, misuse("normalize "+c.key, fmt.Sprintf("statistics of %v", c.feature.Shape), fmt.Sprintf("%d numbers", len(low)))
	}
	for i := range low {
		if !(math.Abs(low[i]) <= math.MaxFloat32) || !(math.Abs(high[i]) <= math.MaxFloat32) {
			return nil, nil, misuse("normalize "+c.key, "finite statistics", fmt.Sprint(low[i], ", ", high[i]))
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
