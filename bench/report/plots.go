package report

import (
	"bytes"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is one plot: groups of bars, beside each other or Stacked, or with Curves lines, over logarithmic axes where they are not Linear.
type Figure struct {
	Name, Title, Unit string
	X                 string // label of the axis below curves
	Stacked, Linear   bool
	Groups            []string
	Series            []Series
	Curves            []Curve
}

// Series is a bar in each group; a spread without figures is none.
type Series struct {
	Name   string
	Values map[string]Spread // by group
}

// Curve is a line.
type Curve struct {
	Name   string
	Points plotter.XYs
	Limit  bool // dashed
}

// Set puts a bar of a series into a group; both are made where they are new.
func (f *Figure) Set(name, group string, s Spread) {
	Find(&f.Groups, group)
	i := slices.IndexFunc(f.Series, func(x Series) bool { return x.Name == name })
	if i < 0 {
		i = len(f.Series)
		f.Series = append(f.Series, Series{name, map[string]Spread{}})
	}
	f.Series[i].Values[group] = s
}

// Find gives the place of a name, which is added where it is new.
func Find(names *[]string, name string) int {
	if i := slices.Index(*names, name); i >= 0 {
		return i
	}
	*names = append(*names, name)
	return len(*names) - 1
}

var palette = []color.Color{color.RGBA{0x3b, 0x6e, 0xa5, 0xff}, color.RGBA{0xd9, 0x8b, 0x3a, 0xff}, color.RGBA{0x5b, 0x9a, 0x5b, 0xff}, color.RGBA{0xa8, 0x50, 0x6b, 0xff}, color.RGBA{0x7a, 0x6a, 0xb0, 0xff}, color.RGBA{0x77, 0x77, 0x77, 0xff}}

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
	beside := max(len(f.Series), 1)
	if f.Stacked {
		beside = 1
	}
	wide := vg.Points(max(4, 46/float64(beside)))
	var below *plotter.BarChart
	for i, s := range f.Series {
		offset := wide * vg.Length(float64(i%beside)-float64(beside-1)/2)
		values := make(plotter.Values, len(f.Groups))
		e := struct {
			plotter.XYs
			plotter.YErrors
		}{make(plotter.XYs, len(values)), make(plotter.YErrors, len(values))}
		for g, name := range f.Groups {
			v := s.Values[name]
			values[g], e.XYs[g] = v.Median, plotter.XY{X: float64(g), Y: v.Median}
			e.YErrors[g].Low, e.YErrors[g].High = v.Median-v.Min, v.Max-v.Median
		}
		b, err := plotter.NewBarChart(values, wide)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(e)
		if err != nil {
			return err
		}
		b.Color, b.LineStyle.Width, b.Offset = palette[i%len(palette)], 0, offset
		if f.Stacked && below != nil {
			b.StackOn(below)
		}
		p.Add(b)
		if below = b; !f.Stacked {
			p.Add(shifted{bars, offset})
		}
		p.Legend.Add(s.Name, b)
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
	if !f.Linear {
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
		p.Legend.Left = true
	}
	for i, c := range f.Curves {
		if len(c.Points) == 0 {
			continue
		}
		l, s, err := plotter.NewLinePoints(c.Points)
		if err != nil {
			return err
		}
		l.Color, s.Color, s.Radius = palette[i%len(palette)], palette[i%len(palette)], vg.Points(2)
		if f.Linear {
			s.Radius = 0
		}
		if c.Limit {
			l.Color, s.Color, l.Dashes = palette[len(palette)-1], palette[len(palette)-1], []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(l, s)
		p.Legend.Add(c.Name, l)
	}
	return nil
}
