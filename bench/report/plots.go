package report

import (
	"bytes"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is one plot: groups of bars, or with Curves lines over logarithmic axes.
type Figure struct {
	Name, Title, Unit string
	Groups            []string
	Series            []series
	Curves            []Curve
	X                 string // label of the axis below curves
}

type series struct {
	Name      string
	Values    []float64 // a group each; NaN: none
	Low, High []float64 // of the repeats; nil: no bars of error
}

type Curve struct {
	Name   string
	Points plotter.XYs
	Limit  bool // dashed
}

var palette = []color.Color{color.RGBA{0x3b, 0x6e, 0xa5, 0xff}, color.RGBA{0xd9, 0x8b, 0x3a, 0xff}, color.RGBA{0x5b, 0x9a, 0x5b, 0xff}, color.RGBA{0xa8, 0x50, 0x6b, 0xff}, color.RGBA{0x7a, 0x6a, 0xb0, 0xff}, color.RGBA{0x77, 0x77, 0x77, 0xff}}

// errBar gives plotter what it wants of bars with errors.
type errBar struct {
	plotter.XYs
	plotter.YErrors
}

// render gives the plot as PNG and as SVG.
func (f *Figure) render() (png, svg []byte, err error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Legend.Top = f.Title, f.X, f.Unit, true
	p.Add(plotter.NewGrid())
	wide := vg.Length(620)
	if f.Curves != nil {
		err = f.lines(p)
	} else {
		wide = vg.Points(float64(max(460, 120+80*len(f.Groups))))
		err = f.bars(p)
	}
	if err != nil {
		return nil, nil, err
	}
	const high = 300 * vg.Inch / 72
	var a, b bytes.Buffer
	c := vgimg.PngCanvas{Canvas: vgimg.New(wide, high)}
	p.Draw(draw.New(c))
	if _, err := c.WriteTo(&a); err != nil {
		return nil, nil, err
	}
	s := vgsvg.New(wide, high)
	p.Draw(draw.New(s))
	_, err = s.WriteTo(&b)
	return a.Bytes(), b.Bytes(), err
}

func (f *Figure) bars(p *plot.Plot) error {
	p.Y.Min = 0
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
			return err
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
			return err
		}
		p.Add(shifted{bars, offset})
	}
	p.NominalX(f.Groups...)
	p.X.Tick.Label.Rotation = 0.35
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
	p.X.Min, p.X.Max = -0.7, float64(len(f.Groups))-0.3
	p.Y.Max *= 1.15 // the legend stands above the bars
	return nil
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

func (f *Figure) lines(p *plot.Plot) error {
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Left = true
	for i, c := range f.Curves {
		if len(c.Points) == 0 {
			continue
		}
		l, s, err := plotter.NewLinePoints(c.Points)
		if err != nil {
			return err
		}
		l.Color, s.Color, s.Radius = palette[i%len(palette)], palette[i%len(palette)], vg.Points(2)
		if c.Limit {
			l.Color, s.Color, l.Dashes = palette[len(palette)-1], palette[len(palette)-1], []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(l, s)
		p.Legend.Add(c.Name, l)
	}
	return nil
}

// columns collects a series a name over groups, with no value where nothing was set.
type Columns struct {
	Groups []string
	series []series
}

// set puts the spread of a name in a group.
func (c *Columns) Set(name, group string, s Spread) {
	g := Find(&c.Groups, group)
	i := -1
	for k := range c.series {
		if c.series[k].Name == name {
			i = k
		}
	}
	if i < 0 {
		i = len(c.series)
		c.series = append(c.series, series{Name: name})
	}
	x := &c.series[i]
	x.Values, x.Low, x.High = reach(x.Values, g), reach(x.Low, g), reach(x.High, g)
	if len(s.Raw) > 0 {
		x.Values[g], x.Low[g], x.High[g] = s.Median, s.Min, s.Max
	}
}

// find gives the place of a name, which is added where it is new.
func Find(names *[]string, name string) int {
	for i, n := range *names {
		if n == name {
			return i
		}
	}
	*names = append(*names, name)
	return len(*names) - 1
}

// reach makes a list long enough to have a place.
func reach(v []float64, at int) []float64 {
	for len(v) <= at {
		v = append(v, math.NaN())
	}
	return v
}

// figure draws what was collected.
func (c *Columns) Figure(name, title, unit string) *Figure {
	for i := range c.series {
		s := &c.series[i]
		last := len(c.Groups) - 1
		s.Values, s.Low, s.High = reach(s.Values, last), reach(s.Low, last), reach(s.High, last)
	}
	return &Figure{Name: name, Title: title, Unit: unit, Groups: c.Groups, Series: c.series}
}
