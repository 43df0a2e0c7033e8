package report

import (
	"bytes"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is one plot: groups of bars, beside each other or Stacked, or with Curves lines.
type Figure struct {
	Name, Title, Unit string
	X                 string // label of the axis below curves
	Stacked           bool
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
	Marks  plotter.XYs // triangles
	Limit  bool        // dashed
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

// Point adds a point to a line, which is made where it is new.
func (f *Figure) Point(name string, x, y float64) {
	i := slices.IndexFunc(f.Curves, func(c Curve) bool { return c.Name == name })
	if i < 0 {
		i = len(f.Curves)
		f.Curves = append(f.Curves, Curve{Name: name})
	}
	f.Curves[i].Points = append(f.Curves[i].Points, plotter.XY{X: x, Y: y})
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
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Title.Padding = f.Title, f.X, f.Unit, vg.Points(6)
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
	// The legend stands right of the plot.
	const high, margin = 300 * vg.Inch / 72, 8 * vg.Inch / 72
	legend := p.Legend
	p.Legend, legend.Top, legend.Padding = plot.NewLegend(), true, vg.Points(3)
	side := legend.Rectangle(draw.New(vgsvg.New(wide, high))).Size().X + margin
	var to [2]bytes.Buffer
	for i, on := range []interface {
		vg.CanvasSizer
		io.WriterTo
	}{vgimg.PngCanvas{Canvas: vgimg.New(wide+side, high)}, vgsvg.New(wide+side, high)} {
		c := draw.Crop(draw.New(on), margin, -margin, margin, -margin)
		p.Draw(draw.Crop(c, 0, -side, 0, 0))
		legend.Draw(c)
		if _, err := on.WriteTo(&to[i]); err != nil {
			return nil, nil, err
		}
	}
	return to[0].Bytes(), to[1].Bytes(), nil
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
		}{}
		for g, name := range f.Groups {
			v := s.Values[name]
			if values[g] = v.Median; v.Max > v.Min {
				e.XYs = append(e.XYs, plotter.XY{X: float64(g), Y: v.Median})
				e.YErrors = append(e.YErrors, struct{ Low, High float64 }{v.Median - v.Min, v.Max - v.Median})
			}
		}
		b, err := plotter.NewBarChart(values, wide)
		if err != nil {
			return err
		}
		b.Color, b.LineStyle.Width, b.Offset = palette[i%len(palette)], 0, offset
		if f.Stacked && below != nil {
			b.StackOn(below)
		}
		p.Add(b)
		if below = b; !f.Stacked && len(e.XYs) > 0 {
			bars, err := plotter.NewYErrorBars(e)
			if err != nil {
				return err
			}
			p.Add(shifted{bars, offset})
		}
		if s.Name != "" {
			p.Legend.Add(s.Name, b)
		}
	}
	p.NominalX(f.Groups...)
	p.X.Tick.Label.Rotation = 0.35
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
	p.X.Min, p.X.Max = -0.7, float64(len(f.Groups))-0.3
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
	few := plot.ConstantTicks{} // of lines with few points each has its tick
	for i, c := range f.Curves {
		if len(c.Points) == 0 {
			continue
		}
		l, s, err := plotter.NewLinePoints(c.Points)
		if err != nil {
			return err
		}
		l.Color, s.Color, s.Radius = palette[i%len(palette)], palette[i%len(palette)], vg.Points(2)
		if i >= len(palette) {
			l.Dashes = []vg.Length{vg.Points(2), vg.Points(2)}
		}
		if len(c.Points) > 10 {
			s.Radius = 0
		} else {
			p.Y.Min = 0
			for _, at := range c.Points {
				if t := (plot.Tick{Value: at.X, Label: Digits(at.X)}); !slices.Contains(few, t) {
					few = append(few, t)
				}
			}
		}
		if c.Limit {
			l.Color, s.Color, l.Dashes = palette[len(palette)-1], palette[len(palette)-1], []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(l, s)
		if c.Name != "" {
			p.Legend.Add(c.Name, l)
		}
		if len(c.Marks) > 0 {
			m, err := plotter.NewScatter(c.Marks)
			if err != nil {
				return err
			}
			m.Color, m.Shape, m.Radius = l.Color, draw.TriangleGlyph{}, vg.Points(4)
			p.Add(m)
		}
	}
	if len(few) > 0 {
		p.X.Tick.Marker = few
	}
	return nil
}
