package diff

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// compareInfo compares the metadata, the features and the stored statistics.
func (c *comparison) compareInfo(ctx context.Context) error {
	a, b := c.a.ds.Info(), c.b.ds.Info()
	r := c.report
	add := func(name string, differs bool, x, y any) {
		if differs {
			r.Metadata = append(r.Metadata, Property{name, x, y})
		}
	}
	add("fps", !a.FPS.Zero() && !b.FPS.Zero() && a.FPS != b.FPS, a.FPS, b.FPS)
	add("robot_type", a.Robot != "" && b.Robot != "" && a.Robot != b.Robot, a.Robot, b.Robot)
	onlyA, onlyB := onlyIn(taskTexts(a), taskTexts(b)), onlyIn(taskTexts(b), taskTexts(a))
	add("tasks", len(onlyA)+len(onlyB) > 0, onlyA, onlyB)
	hasSplits := len(a.Splits) > 0 && len(b.Splits) > 0
	add("splits", hasSplits && !maps.Equal(a.Splits, b.Splits), a.Splits, b.Splits)
	c.compareFeatures()
	if !c.a.knowsTime || !c.b.knowsTime {
		r.Notes = append(r.Notes, "timestamps were not compared: a dataset keeps none")
	}
	if c.opt.Frames == FramesNone && len(c.a.cameras)+len(c.b.cameras) > 0 {
		r.Notes = append(r.Notes, "frames were not compared")
	}
	return c.compareStats(ctx)
}

// taskTexts returns the texts of the tasks, sorted.
func taskTexts(info *robocache.Info) (out []string) {
	for _, t := range info.Tasks {
		out = append(out, t.Text)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// onlyIn returns the texts of list that other lacks. It is never nil.
func onlyIn(list, other []string) []string {
	out := []string{}
	for _, text := range list {
		if !slices.Contains(other, text) {
			out = append(out, text)
		}
	}
	return out
}

// compareFeatures lists the features that differ.
func (c *comparison) compareFeatures() {
	namesB := map[string]string{} // by key in A
	for _, x := range c.shared {
		namesB[x.a.Key] = x.b.Key
	}
	for _, x := range c.cameras {
		namesB[x.a.Key] = x.b.Key
	}
	if c.opt.Frames == FramesNone {
		for _, f := range c.a.cameras {
			namesB[f.Key] = f.Key
		}
	}
	seenB := map[string]bool{}
	for _, f := range c.a.features() {
		g := c.b.ds.Info().Feature(namesB[f.Key])
		if g == nil {
			c.report.Features = append(c.report.Features, Feature{Key: f.Key, Change: "removed"})
			continue
		}
		seenB[g.Key] = true
		x := Feature{Key: f.Key, Change: "changed", Properties: compareFeature(f, g)}
		if f.Key != g.Key {
			x.Change, x.To = "renamed", g.Key
		}
		if f.Key != g.Key || len(x.Properties) > 0 {
			c.report.Features = append(c.report.Features, x)
		}
	}
	for _, g := range c.b.features() {
		if !seenB[g.Key] {
			c.report.Features = append(c.report.Features, Feature{Key: g.Key, Change: "added"})
		}
	}
}

// features returns the features that are compared, sorted by key.
func (s *side) features() []*robocache.Feature {
	out := slices.Clone(s.cameras)
	for _, x := range s.streams {
		out = append(out, x.Feature)
	}
	slices.SortFunc(out, func(f, g *robocache.Feature) int { return strings.Compare(f.Key, g.Key) })
	return out
}

// compareFeature returns the properties of a feature that differ. A property that only one dataset
// states is no difference, except kind, dtype and shape.
func compareFeature(f, g *robocache.Feature) (out []Property) {
	add := func(name string, differs bool, x, y any) {
		if differs {
			out = append(out, Property{name, x, y})
		}
	}
	isFrame := f.Kind == robocache.KindImage || f.Kind == robocache.KindVideo
	add("kind", !isFrame && f.Kind != g.Kind, f.Kind, g.Kind)
	add("dtype", f.DType != g.DType, f.DType.String(), g.DType.String())
	if isFrame {
		sizeF, sizeG := []int{f.Height, f.Width}, []int{g.Height, g.Width}
		known := f.Height > 0 && g.Height > 0
		add("size", known && !slices.Equal(sizeF, sizeG), sizeF, sizeG)
		add("codec", f.Codec != "" && g.Codec != "" && f.Codec != g.Codec, f.Codec, g.Codec)
		return out
	}
	isScalar := f.Scalar() && g.Scalar()
	add("shape", !isScalar && !slices.Equal(f.Shape, g.Shape), f.Shape, g.Shape)
	namesF, namesG := f.ChannelNames(), g.ChannelNames()
	bothNamed := namesF != nil && namesG != nil
	add("names", bothNamed && !slices.Equal(namesF, namesG),
		json.RawMessage(f.Names), json.RawMessage(g.Names))
	add("unit", f.Unit != "" && g.Unit != "" && f.Unit != g.Unit, f.Unit, g.Unit)
	return out
}

// sameStatistic is the relative difference of statistics that count as equal.
const sameStatistic = 1e-6

// compareStats compares the statistics that both datasets store. Statistics of frames depend on
// the frames that were sampled, so they are left out.
func (c *comparison) compareStats(ctx context.Context) error {
	a, err := c.a.ds.Stats(ctx)
	if err != nil {
		return robocache.At(err, robocache.Where{"dataset": robocache.Redact(c.a.ds.Info().URI)})
	}
	b, err := c.b.ds.Stats(ctx)
	if err != nil {
		return robocache.At(err, robocache.Where{"dataset": robocache.Redact(c.b.ds.Info().URI)})
	}
	for _, x := range c.shared {
		if s, t := a[x.a.Key], b[x.b.Key]; s != nil && t != nil {
			c.report.Statistics = append(c.report.Statistics, compareStatistics(x.a.Key, s, t)...)
		}
	}
	return nil
}

// compareStatistics compares the statistics of a stream.
func compareStatistics(key string, a, b *robocache.FeatureStats) (out []Statistic) {
	compare := func(name string, x, y []float64) {
		if x == nil || y == nil {
			return
		}
		if len(x) != len(y) {
			out = append(out, Statistic{Key: key, Name: name})
			return
		}
		most, differs := 0.0, false
		for i := range x {
			d := math.Abs(x[i] - y[i])
			if d > sameStatistic*max(1, math.Abs(x[i]), math.Abs(y[i])) {
				most, differs = max(most, d), true
			}
		}
		if differs {
			out = append(out, Statistic{key, name, &most})
		}
	}
	compare("min", a.Min, b.Min)
	compare("max", a.Max, b.Max)
	compare("mean", a.Mean, b.Mean)
	compare("std", a.Std, b.Std)
	if a.Count > 0 && b.Count > 0 {
		compare("count", []float64{float64(a.Count)}, []float64{float64(b.Count)})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Quantiles)) {
		compare(name, a.Quantiles[name], b.Quantiles[name])
	}
	return out
}
