package report

import (
	"image/color"
	"slices"

	"github.com/goatnote-inc/robocache/inspect/chart"
)

// Figure is one plot. It has curves, or else groups of bars, side by side or Stacked.
type Figure struct {
	Name, Title, Unit string
	X                 string // axis label of curves
	Stacked           bool
	Groups            []string
	Series            []Series
	Curves            []Curve
}

// Series has one bar in each group. An empty spread draws no bar.
type Series struct {
	Name   string
	Values map[string]Spread // by group
}

// Curve is one line of a plot.
type Curve struct {
	Name   string
	Points []chart.Point
	Marks  []chart.Point // triangles
	Limit  bool          // dashed
}

// Set sets the bar of a series in a group. Both are added if they are new.
func (f *Figure) Set(name, group string, s Spread) {
	Find(&f.Groups, group)
	i := slices.IndexFunc(f.Series, func(x Series) bool { return x.Name == name })
	if i < 0 {
		i = len(f.Series)
		f.Series = append(f.Series, Series{name, map[string]Spread{}})
	}
	f.Series[i].Values[group] = s
}

// Point adds a point to a curve. The curve is added if it is new.
func (f *Figure) Point(name string, x, y float64) {
	i := slices.IndexFunc(f.Curves, func(c Curve) bool { return c.Name == name })
	if i < 0 {
		i = len(f.Curves)
		f.Curves = append(f.Curves, Curve{Name: name})
	}
	f.Curves[i].Points = append(f.Curves[i].Points, chart.Point{X: x, Y: y})
}

// Find returns the index of name. It appends the name if it is new.
func Find(names *[]string, name string) int {
	if i := slices.Index(*names, name); i >= 0 {
		return i
	}
	*names = append(*names, name)
	return len(*names) - 1
}

var palette = []color.RGBA{
	{0x3b, 0x6e, 0xa5, 0xff},
	{0xd9, 0x8b, 0x3a, 0xff},
	{0x5b, 0x9a, 0x5b, 0xff},
	{0xa8, 0x50, 0x6b, 0xff},
	{0x7a, 0x6a, 0xb0, 0xff},
	{0x77, 0x77, 0x77, 0xff},
}

// drawPlot draws the plot, with its legend on the right.
func (f *Figure) drawPlot() *chart.Canvas {
	p := &chart.Plot{
		Title: f.Title,
		X:     chart.Axis{Label: f.X},
		Y:     chart.Axis{Label: f.Unit},
		Grid:  true,
	}
	wide, names, lines := 820.0, []string(nil), []chart.Line(nil)
	if f.Curves != nil {
		names, lines = f.addCurves(p)
	} else {
		wide = float64(max(610, 160+106*len(f.Groups)))
		names, lines = f.addBars(p)
	}
	const high, margin, line = 400, 10, chart.Size + 4
	side := 0.0
	for _, n := range names {
		side = max(side, chart.TextWidth(n)+margin+18)
	}
	c := &chart.Canvas{
		Width:  wide + side + 2*margin,
		Height: max(high, float64(2*margin+line*len(names))),
	}
	p.Draw(c, chart.Rect{X: margin, Y: margin, W: wide, H: high - 2*margin})
	for i, n := range names {
		c.Legend(margin+wide+margin, float64(margin+line*(i+1)), lines[i], n)
	}
	return c
}

// addBars adds the bars to p and returns the legend.
func (f *Figure) addBars(p *chart.Plot) (names []string, lines []chart.Line) {
	beside := max(len(f.Series), 1)
	if f.Stacked {
		beside = 1
	}
	wide := max(5, 60/float64(beside))
	below := make([]float64, len(f.Groups))
	for i, s := range f.Series {
		for g, name := range f.Groups {
			v, from := s.Values[name], below[g]
			b := chart.Bar{
				Color:  palette[i%len(palette)],
				X:      float64(g),
				From:   from,
				To:     from + v.Median,
				Wide:   wide,
				Offset: wide * (float64(i%beside) - float64(beside-1)/2),
			}
			if f.Stacked {
				below[g] = b.To
			} else {
				b.Low, b.High = v.Min, v.Max
			}
			p.Bars = append(p.Bars, b)
		}
		if s.Name != "" {
			names, lines = append(
				names,
				s.Name,
			), append(
				lines,
				chart.Line{Color: palette[i%len(palette)], Width: 8},
			)
		}
	}
	for g, name := range f.Groups {
		p.X.Ticks = append(p.X.Ticks, chart.Tick{At: float64(g), Label: name})
	}
	p.X.Turned, p.X.Holds = true, []float64{-0.7, float64(len(f.Groups)) - 0.3}
	return names, lines
}

// addCurves adds the curves to p and returns the legend.
func (f *Figure) addCurves(p *chart.Plot) (names []string, lines []chart.Line) {
	for i, c := range f.Curves {
		if len(c.Points) == 0 {
			continue
		}
		l := chart.Line{Color: palette[i%len(palette)], Points: c.Points, Width: 1.5, Dots: 2.5}
		if i >= len(palette) {
			l.Dash = 3
		}
		if len(c.Points) > 10 {
			l.Dots = 0
		} else { // if there are few points, each x value gets a tick
			p.Y.Holds = []float64{0}
			for _, at := range c.Points {
				if t := (chart.Tick{At: at.X, Label: Digits(at.X)}); !slices.Contains(p.X.Ticks,
					t) {
					p.X.Ticks = append(p.X.Ticks, t)
				}
			}
		}
		if c.Limit {
			l.Color, l.Dash, l.Dots = palette[len(palette)-1], 5, 0
		}
		p.Lines = append(p.Lines, l)
		if c.Name != "" {
			names, lines = append(names, c.Name), append(lines, l)
		}
		p.Points = append(p.Points, chart.Line{Color: l.Color, Points: c.Marks})
	}
	return names, lines
}
