package chart

import (
	"image/color"
	"math"
	"strconv"
)

// Plot draws lines and bars over a pair of axes.
type Plot struct {
	Title  string
	X, Y   Axis
	Grid   bool
	Lines  []Line
	Bars   []Bar
	Points []Line // a triangle is drawn at each point
}

// Axis is an axis of a plot.
type Axis struct {
	Label  string
	Holds  []float64 // values that the axis includes in addition to the drawn ones
	Ticks  []Tick    // nil: ticks at round numbers
	Turned bool      // labels of ticks are rotated
	Hidden bool
}

// Tick is a mark on an axis.
type Tick struct {
	At    float64
	Label string
}

// Line is a line of a plot.
type Line struct {
	Color       color.RGBA
	Points      []Point
	Width, Dash float64
	Dots        float64 // radius of the dot at each point
}

// Bar is a bar of a plot. It is Wide pixels wide and shifted by Offset pixels. If High is above
// Low, an error bar is drawn between them.
type Bar struct {
	Color        color.RGBA
	X, From, To  float64
	Wide, Offset float64
	Low, High    float64
}

var gray = color.RGBA{R: 225, G: 225, B: 225, A: 255}

// dataRange returns the values at the ends of an axis.
func (a *Axis) dataRange(values func(func(float64))) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	take := func(v float64) {
		if !math.IsNaN(v - v) {
			low, high = min(low, v), max(high, v)
		}
	}
	values(take)
	for _, v := range a.Holds {
		take(v)
	}
	switch {
	case low > high:
		return 1, 2 // nothing is drawn
	case low < high:
		return low, high
	}
	return low - max(math.Abs(low)/10, 1e-9), high + max(math.Abs(high)/10, 1e-9)
}

// placeTicks returns the ticks between two values. It chooses round numbers and about as many as
// asked.
func (a *Axis) placeTicks(low, high float64, about int) (out []Tick) {
	if a.Ticks != nil {
		return a.Ticks
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/float64(about))))
	for _, f := range []float64{1, 2, 5, 10} {
		if (high-low)/(f*step) <= float64(about) {
			step *= f
			break
		}
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		v := i*step + 0 // adding 0 turns -0 into 0
		if digits := math.Ceil(-math.Log10(step) - 1e-9); digits > 0 && digits < 300 {
			// Rounding gives 0.3, not 0.30000000000000004.
			v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'f', int(digits), 64), 64)
		}
		if out = append(out, Tick{v, strconv.FormatFloat(v, 'g', -1, 64)}); len(out) > 4*about {
			break // the values are too close for the step
		}
	}
	return out
}

// Draw draws the plot into a rectangle of a canvas.
func (p *Plot) Draw(c *Canvas, r Rect) {
	each := func(x func(Point), bar func(Bar)) {
		for _, lines := range [][]Line{p.Lines, p.Points} {
			for _, l := range lines {
				for _, at := range l.Points {
					x(at)
				}
			}
		}
		for _, b := range p.Bars {
			bar(b)
		}
	}
	x0, x1 := p.X.dataRange(
		func(take func(float64)) { each(func(at Point) { take(at.X) }, func(b Bar) { take(b.X) }) },
	)
	y0, y1 := p.Y.dataRange(func(take func(float64)) {
		each(func(at Point) { take(at.Y) }, func(b Bar) { take(b.From); take(b.To); take(b.High) })
	})
	xs := p.X.placeTicks(x0, x1, max(2, int(r.W/100)))
	var ys []Tick
	left := 8.0
	if !p.Y.Hidden {
		ys = p.Y.placeTicks(y0, y1, max(2, int(r.H/40)))
		for _, t := range ys {
			left = max(left, TextWidth(t.Label)+8)
		}
		if p.Y.Label != "" {
			c.Text(r.X+Size, r.Y+r.H/2, 0.5, -90, p.Y.Label)
			left += 1.5 * Size
		}
	}
	below := 1.6 * Size
	for _, t := range xs {
		if wide := TextWidth(t.Label); p.X.Turned {
			below = max(below, 1.5*Size+wide*math.Sin(labelAngle*math.Pi/180))
			left = max(left, min(wide, r.W/4))
		}
	}
	if p.X.Label != "" {
		c.Text(r.X+left+(r.W-left)/2, r.Y+r.H-4, 0.5, 0, p.X.Label)
		below += 1.3 * Size
	}
	above := 6.0
	if p.Title != "" {
		c.Text(r.X+left, r.Y+Size+2, 0, 0, p.Title)
		above = 1.8 * Size
	}
	in := Rect{r.X + left, r.Y + above, r.W - left - 10, r.H - above - below}
	at := func(v Point) Point {
		return Point{in.X + in.W*(v.X-x0)/(x1-x0), in.Y + in.H*(y1-v.Y)/(y1-y0)}
	}
	bottom := in.Y + in.H
	for _, t := range xs {
		x := at(Point{t.At, y0}).X
		if p.Grid {
			c.Line(gray, 0.5, 0, Point{x, in.Y}, Point{x, bottom})
		}
		c.Line(Black, 1, 0, Point{x, bottom}, Point{x, bottom + 4})
		if p.X.Turned {
			c.Text(x+4, bottom+4+Size, 1, -labelAngle, t.Label)
		} else {
			c.Text(x, bottom+5+Size, 0.5, 0, t.Label)
		}
	}
	for _, t := range ys {
		y := at(Point{x0, t.At}).Y
		if p.Grid {
			c.Line(gray, 0.5, 0, Point{in.X, y}, Point{in.X + in.W, y})
		}
		c.Line(Black, 1, 0, Point{in.X - 4, y}, Point{in.X, y})
		c.Text(in.X-6, y+Size*0.35, 1, 0, t.Label)
	}
	c.Line(Black, 1, 0, Point{in.X, bottom}, Point{in.X + in.W, bottom})
	if !p.Y.Hidden {
		c.Line(Black, 1, 0, Point{in.X, in.Y}, Point{in.X, bottom})
	}
	for _, b := range p.Bars {
		from, to := at(Point{b.X, b.From}), at(Point{b.X, b.To})
		x := from.X + b.Offset
		c.Area(
			b.Color,
			Point{x - b.Wide/2, from.Y},
			Point{x + b.Wide/2, from.Y},
			Point{x + b.Wide/2, to.Y},
			Point{x - b.Wide/2, to.Y},
		)
		if b.High > b.Low {
			low, high := at(Point{b.X, b.Low}).Y, at(Point{b.X, b.High}).Y
			for _, l := range [][2]Point{
				{{x, low}, {x, high}},
				{{x - 3, low}, {x + 3, low}},
				{{x - 3, high}, {x + 3, high}},
			} {
				c.Line(Black, 1, 0, l[:]...)
			}
		}
	}
	for _, l := range p.Lines {
		points := make([]Point, len(l.Points))
		for i, v := range l.Points {
			points[i] = at(v)
			if l.Dots > 0 && points[i].isFinite() {
				c.Dot(l.Color, l.Dots, points[i])
			}
		}
		c.Line(l.Color, l.Width, l.Dash, points...)
	}
	for _, l := range p.Points {
		for _, v := range l.Points {
			v = at(v)
			c.Area(
				l.Color,
				Point{v.X, v.Y - 5},
				Point{v.X + 4.5, v.Y + 3},
				Point{v.X - 4.5, v.Y + 3},
			)
		}
	}
}

// Legend draws a piece of the line and its name, with the base line at y.
func (c *Canvas) Legend(x, y float64, l Line, name string) {
	c.Line(l.Color, l.Width, l.Dash, Point{x, y - Size*0.35}, Point{x + 14, y - Size*0.35})
	c.Text(x+18, y, 0, 0, name)
}

// labelAngle is the rotation of turned labels, in degrees.
const labelAngle = 20
