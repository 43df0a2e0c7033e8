package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// setNormalization selects the columns to normalize and sets their statistics.
func (src *Source) setNormalization(ctx context.Context) error {
	n := &src.Config.Normalize
	if n.IsZero() {
		return nil
	}
	var all []normalized
	seen := 0
	for _, c := range src.Columns {
		norm, named := n.Keys[c.Key]
		if !named && (c.Feature == nil || column.Is[*column.TimesColumn](c)) {
			continue
		}
		if named {
			seen++
		} else {
			norm = options.Norm{Mode: n.Mode}
			if n.Mode == "" || c.IsBookkeeping() || !c.IsNumericStream() || !c.StoredDType.Float() {
				continue
			}
		}
		if err := checkNormalizable(c); err != nil {
			return err
		}
		all = append(all, normalized{c, norm})
	}
	if seen < len(n.Keys) {
		for k := range n.Keys {
			if src.Column(k) == nil {
				return robocache.Misuse("loader", robocache.Where{"stream": k},
					"normalize: no tensor of that key").
					WithHint("%s", robocache.Nearest(k, src.columnKeys()))
			}
		}
	}
	if len(all) == 0 && n.Mode != "" {
		src.logProgress(
			"%s changes nothing: none of %s is a float feature that one word applies to; name "+
				"keys: %s",
			robocache.Option("normalize", n.Mode),
			strings.Join(src.columnKeys(), ", "),
			robocache.Option("normalize", "KEY", "MODE"),
		)
	} else if n.Mode != "" {
		var keys []string
		for _, c := range all {
			if !slices.Contains(keys, c.Key) {
				keys = append(keys, c.Key)
			}
		}
		src.logProgress(
			"%s is applied to %s; name keys to choose others: %s",
			robocache.Option("normalize", n.Mode),
			strings.Join(keys, ", "),
			robocache.Option("normalize", "KEY", "MODE"),
		)
	}
	read := slices.Clone(all)
	for _, c := range all {
		for _, one := range c.Alternatives()[1:] {
			if one.HasNumbers() {
				read = append(read, normalized{one, c.norm})
			}
		}
	}
	stats, err := src.findStatistics(ctx, byStream(read))
	if err != nil {
		return err
	}
	var constant []string
	for _, c := range all {
		low, high, err := normVectors(&c.norm, c.Column, stats[c.StreamKey()])
		if err != nil {
			return err
		}
		if err := checkEqualNorms(c, low, high, stats); err != nil {
			return err
		}
		f := &column.Affine{
			Clip: c.norm.Clip && c.norm.Mode != "mean_std",
			Mode: c.norm.Mode,
			Low:  low,
			High: high,
		}
		if c.norm.Mode == "mean_std" {
			f.Norm = *kernel.NewMeanStd(low, high)
		} else {
			f.Norm = *kernel.NewMinMax(low, high)
		}
		for k, b := range f.B {
			if b == 0 {
				constant = append(constant, fmt.Sprintf("%s[%d]", c.Key, k))
			}
		}
		for _, one := range c.Alternatives() {
			one.Norm = f
			if c.HasNumbers() && c.OutDType != robocache.Float64 {
				one.SetDType(robocache.Float32)
			}
		}
	}
	if len(constant) > 0 {
		sort.Strings(constant)
		if len(constant) > 16 {
			constant = append(constant[:16], "…")
		}
		src.report.Warn("constant columns are normalised to 0: " + strings.Join(constant, ", "))
	}
	return nil
}

// byStream returns the columns that need statistics, with the keys of their streams, each once.
func byStream(all []normalized) (out []normalized) {
	for _, c := range all {
		if c.norm.Own() != nil {
			continue
		}
		if c.Stream != "" {
			of := *c.Column
			of.Key = c.Stream
			c.Column = &of
		}
		isSame := func(o normalized) bool { return o.Key == c.Key && o.norm.Mode == c.norm.Mode }
		if !slices.ContainsFunc(out, isSame) {
			out = append(out, c)
		}
	}
	return out
}

// checkNormalizable rejects columns that cannot be normalized.
func checkNormalizable(c *column.Column) error {
	bad := func(msg, hint string) error {
		return robocache.Misuse("loader", robocache.Where{"stream": c.Key}, "normalize: %s", msg).
			WithHint("%s", hint)
	}
	switch {
	case c.OutDType == robocache.String || c.OutDType == robocache.JSON:
		return bad("a text", "")
	case column.Is[*column.VectorColumn](c):
		return bad("a vector", "Pass norm for its parts: robocache.Part(…, norm=…).")
	case c.IsComputed(), column.Is[*column.TimesColumn](c):
		return bad("a number that the loader computes", "name float features only")
	case c.HasNumbers() && !c.StoredDType.Float():
		return bad(
			c.StoredDType.String()+" values are left as they are",
			"name float features only",
		)
	case !c.HasNumbers() && c.OutDType != robocache.Float32:
		return bad("frames are "+c.OutDType.String(), robocache.Option("image_dtype", "float32"))
	}
	return nil
}

// normVectors returns mean and std, or low and high, of a column.
func normVectors(
	n *options.Norm,
	c *column.Column,
	s *robocache.FeatureStats,
) (low, high []float64, err error) {
	fail := func(msg string) ([]float64, []float64, error) {
		return nil, nil, robocache.Misuse("loader", robocache.Where{"stream": c.Key},
			"normalize: %s", msg).
			WithHint(
				"%s computes them at opening; %s",
				robocache.Option("stats", "compute"),
				statisticsHint(),
			)
	}
	if own := n.Own(); own != nil {
		low, high = own[0], own[1]
	} else if c.IsDepth() {
		return fail("depth needs vectors in its own unit")
	} else if s == nil {
		return fail("there are no statistics of " + c.Key)
	} else {
		low, high = n.Of(s)
	}
	if len(low) == 0 || len(low) != len(high) {
		return fail("no " + n.Mode + " statistics of " + c.Key)
	}
	per := c.Elements
	if !c.HasNumbers() {
		per = column.Channels(c.Image().Spec.Pixel)
		if len(low) != per && len(low) != 1 {
			return nil, nil, options.Misuse(
				"normalize "+c.Key,
				fmt.Sprintf("%d channels", per),
				fmt.Sprint(len(low)),
			)
		}
	} else if per%len(low) != 0 {
		return nil, nil, options.Misuse(
			"normalize "+c.Key,
			fmt.Sprintf("statistics of %v", c.Feature.Shape),
			fmt.Sprintf("%d numbers", len(low)),
		)
	}
	for i := range low {
		if !(math.Abs(low[i]) <= math.MaxFloat32) || !(math.Abs(high[i]) <= math.MaxFloat32) {
			return nil, nil, options.Misuse(
				"normalize "+c.Key,
				"finite statistics",
				fmt.Sprint(low[i], ", ", high[i]),
			)
		}
	}
	return low, high, nil
}
