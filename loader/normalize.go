package loader

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

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
	for _, c := range src.columns {
		if c.feature == nil || is[*timesColumn](c) {
			continue
		}
		norm, named := n.Keys[c.key]
		if named {
			seen++
		} else {
			norm = Norm{Mode: n.Mode}
			if n.Mode == "" || c.bookkeeping() || !c.listed() || !c.stored.Float() {
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
			if src.column(k) == nil {
				return robocache.Misuse("loader", robocache.Where{"stream": k}, "normalize: no tensor of that key").
					WithHint("%s", robocache.Nearest(k, src.keys()))
			}
		}
	}
	if len(all) == 0 && n.Mode != "" {
		src.log("normalize=%q changes nothing: none of %s is a float feature that one word applies to; name keys: normalize={key: mode}", n.Mode, strings.Join(src.keys(), ", "))
	} else if n.Mode != "" {
		var keys []string
		for _, c := range all {
			if !slices.Contains(keys, c.key) {
				keys = append(keys, c.key)
			}
		}
		src.log("normalize=%q is applied to %s; name keys to choose others: normalize={key: mode}", n.Mode, strings.Join(keys, ", "))
	}
	stats, err := src.statistics(ctx, all)
	if err != nil {
		return err
	}
	var constant []string
	for _, c := range all {
		low, high, err := vectors(&c.norm, c.column, stats[c.key])
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
			c.cast(robocache.Float32)
		}
	}
	if len(constant) > 0 {
		sort.Strings(constant)
		if len(constant) > 16 {
			constant = append(constant[:16], "…")
		}
		src.report.warn("constant columns are normalised to 0: " + strings.Join(constant, ", "))
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
		return robocache.Misuse("loader", robocache.Where{"stream": c.key}, "normalize: %s", msg).
			WithHint("%s", hint)
	}
	switch {
	case is[*textColumn](c):
		return bad("a text", "")
	case c.numbers() && !c.stored.Float():
		return bad(c.stored.String()+" values are left as they are", "name float features only")
	case !c.numbers() && c.out != robocache.Float32:
		return bad("frames are "+c.out.String(), robocache.Option("image_dtype", "float32"))
	}
	return nil
}

// isDepth says that the column is depth: its statistics would be of another unit.
func (c *column) isDepth() bool {
	i := c.image()
	return i != nil && (i.spec.Pixel == video.DepthMM || i.spec.Pixel == video.DepthM)
}

// vectors gives mean and std, or low and high, of a column.
func vectors(n *Norm, c *column, s *robocache.FeatureStats) (low, high []float64, err error) {
	fail := func(msg string) ([]float64, []float64, error) {
		return nil, nil, robocache.Misuse("loader", robocache.Where{"stream": c.key}, "normalize: %s", msg).
			WithHint("%s computes them at opening; %s", robocache.Option("stats", "compute"), otherWays())
	}
	if own := n.Own(); own != nil {
		low, high = own[0], own[1]
	} else if c.isDepth() {
		return fail("depth needs vectors in its own unit")
	} else if s == nil {
		return fail("there are no statistics of " + c.key)
	} else {
		low, high = n.Of(s)
	}
	if len(low) == 0 || len(low) != len(high) {
		return fail("no " + n.Mode + " statistics of " + c.key)
	}
	per := c.elems
	if !c.numbers() {
		per = channels(c.image().spec.Pixel)
		if len(low) != per && len(low) != 1 {
			return nil, nil, options.Misuse("normalize "+c.key, fmt.Sprintf("%d channels", per), fmt.Sprint(len(low)))
		}
	} else if per%len(low) != 0 {
		return nil, nil, options.Misuse("normalize "+c.key, fmt.Sprintf("statistics of %v", c.feature.Shape), fmt.Sprintf("%d numbers", len(low)))
	}
	for i := range low {
		if !(math.Abs(low[i]) <= math.MaxFloat32) || !(math.Abs(high[i]) <= math.MaxFloat32) {
			return nil, nil, options.Misuse("normalize "+c.key, "finite statistics", fmt.Sprint(low[i], ", ", high[i]))
		}
	}
	return low, high, nil
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
