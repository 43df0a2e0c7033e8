package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is one plot of groups of bars.
type figure struct {
	Name, Title, Unit string
	Groups            []string
	Series            []series
}

type series struct {
	Name      string
	Values    []float64 // a group each; NaN: none
	Low, High []float64 // of the repeats; nil: no bars of error
}

var palette = []color.Color{color.RGBA{0x3b, 0x6e, 0xa5, 0xff}, color.RGBA{0xd9, 0x8b, 0x3a, 0xff}, color.RGBA{0x5b, 0x9a, 0x5b, 0xff}, color.RGBA{0xa8, 0x50, 0x6b, 0xff}, color.RGBA{0x7a, 0x6a, 0xb0, 0xff}, color.RGBA{0x77, 0x77, 0x77, 0xff}}

// errBar gives plotter what it wants of bars with errors.
type errBar struct {
	plotter.XYs
	plotter.YErrors
}

func (f *figure) draw() (*plot.Plot, vg.Length, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = f.Title, f.Unit
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	wide := vg.Points(max(4, 46/float64(max(len(f.Series), 1))))
	for i, s := range f.Series {
		offset := wide * vg.Length(float64(i)-float64(len(f.Series)-1)/2)
		values := make(plotter.Values, len(s.Values))
		for g, v := range s.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				values[g] = v
			}
		}
		b, err := plotter.NewBarChart(values, wide)
		if err != nil {
			return nil, 0, err
		}
		b.Color, b.LineStyle.Width, b.Offset = palette[i%len(palette)], 0, offset
		p.Add(b)
		p.Legend.Add(s.Name, b)
		if s.Low == nil {
			continue
		}
		e := errBar{make(plotter.XYs, len(values)), make(plotter.YErrors, len(values))}
		for g, v := range values {
			e.XYs[g] = plotter.XY{X: float64(g), Y: v}
			if !math.IsNaN(s.Low[g]) {
				e.YErrors[g].Low, e.YErrors[g].High = max(0, v-s.Low[g]), max(0, s.High[g]-v)
			}
		}
		bars, err := plotter.NewYErrorBars(e)
		if err != nil {
			return nil, 0, err
		}
		p.Add(shifted{bars, offset})
	}
	p.NominalX(f.Groups...)
	p.X.Tick.Label.Rotation = 0.35
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
	p.X.Min, p.X.Max = -0.7, float64(len(f.Groups))-0.3
	p.Y.Max *= 1.15 // the legend stands above the bars
	return p, vg.Points(float64(max(460, 120+80*len(f.Groups)))), nil
}

// shifted moves error bars onto their bar.
type shifted struct {
	*plotter.YErrorBars
	by vg.Length
}

func (s shifted) Plot(c draw.Canvas, p *plot.Plot) {
	c.Push()
	c.Translate(vg.Point{X: s.by})
	s.YErrorBars.Plot(c, p)
	c.Pop()
}

const figureHigh = 300 * vg.Inch / 72

// svg is the figure as an element for a page.
func (f *figure) svg() ([]byte, error) {
	p, w, err := f.draw()
	if err != nil {
		return nil, err
	}
	return svgOf(p, w)
}

func svgOf(p *plot.Plot, w vg.Length) ([]byte, error) {
	c := vgsvg.New(w, figureHigh)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	out := b.Bytes()
	if i := bytes.Index(out, []byte("<svg")); i > 0 {
		out = out[i:] // an element within a page has no header of its own
	}
	return out, nil
}

func (f *figure) png() ([]byte, error) {
	p, w, err := f.draw()
	if err != nil {
		return nil, err
	}
	return pngOf(p, w)
}

func pngOf(p *plot.Plot, w vg.Length) ([]byte, error) {
	c := vgimg.PngCanvas{Canvas: vgimg.New(w, figureHigh)}
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// figures are the plots of a report: rate, time between samples, and the ratio to a baseline.
func (r *SuiteReport) figures() []*figure {
	var groups, runners []string
	at := map[string]int{}
	group := func(k *Keys) string { return fmt.Sprintf("%s bs%d", k.Scenario, k.BatchSize) }
	runnerAt := map[string]int{}
	for _, p := range r.Results {
		g := group(p.Merged)
		if _, ok := at[g]; !ok {
			at[g] = len(groups)
			groups = append(groups, g)
		}
		if _, ok := runnerAt[p.Merged.Runner]; !ok {
			runnerAt[p.Merged.Runner] = len(runners)
			runners = append(runners, p.Merged.Runner)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	blank := func() []float64 {
		v := make([]float64, len(groups))
		for i := range v {
			v[i] = math.NaN()
		}
		return v
	}
	rates := make([]series, len(runners))
	for i, a := range runners {
		rates[i] = series{a, blank(), blank(), blank()}
	}
	var p50, p95, p99 []float64
	var names []string
	for _, p := range r.Results {
		k := p.Merged
		if k.SamplesPerS <= 0 {
			continue
		}
		i, g := runnerAt[k.Runner], at[group(k)]
		s := k.Spread["samples_per_s"]
		rates[i].Values[g], rates[i].Low[g], rates[i].High[g] = s.Median, s.Min, s.Max
		name := group(k)
		if len(runners) > 1 {
			name += " " + k.Runner
		}
		names = append(names, name)
		p50, p95, p99 = append(p50, k.P50SampleLatencyMS), append(p95, k.P95SampleLatencyMS), append(p99, k.P99SampleLatencyMS)
	}
	out := []*figure{
		{"throughput_comparison", "Samples per second (median, min to max of the repeats)", "samples/s", groups, rates},
		{"latency_comparison", "Time between samples", "ms a sample", names, []series{{Name: "p50", Values: p50}, {Name: "p95", Values: p95}, {Name: "p99", Values: p99}}},
	}
	if len(names) == 0 {
		return nil
	}
	// The baseline is a peer where there is one; with one runner it is the first combination.
	base := len(runners) - 1
	speed := &figure{Name: "speedup_comparison", Unit: "times", Groups: groups}
	for i, a := range runners {
		s := series{Name: a, Values: blank()}
		for g := range groups {
			if len(runners) > 1 {
				s.Values[g] = rates[i].Values[g] / rates[base].Values[g]
			} else {
				s.Values[g] = rates[0].Values[g] / rates[0].Values[0]
			}
		}
		speed.Series = append(speed.Series, s)
	}
	speed.Title = "Samples per second, times those of " + runners[base]
	if len(runners) == 1 {
		speed.Title = "Samples per second, times those of " + groups[0]
	}
	return append(out, speed)
}
