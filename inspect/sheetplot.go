package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

const (
	maxCurves  = 64   // channels drawn of a stream
	pointsWide = 2048 // a stream of more rows is drawn by its lowest and highest value in each of so many parts of the time
	gatherSize = 4 << 20
	plotHeight = 200 // pixels
	markHeight = 96  // of a stream that is drawn by its times alone
	legendPx   = 280
	legendLine = 13
)

// timeline is when a stream of an episode has rows. times is nil where nothing says so: its rows are its axis.
type timeline struct {
	f     *robocache.Feature
	rows  int
	times []int64
}

// rank is where a stream stands on the sheet: cameras first, then numbers, then what is marks.
func (s *timeline) rank() int {
	switch s.f.Kind {
	case robocache.KindVideo, robocache.KindImage:
		return 0
	case robocache.KindNumeric:
		return 1
	}
	return 2
}

// span is the time of a whole episode: from the first timestamp of any stream to the last.
type span struct{ from, to int64 }

func (s span) seconds(t int64) float64 { return float64(t-s.from) / 1e9 }

// timelines gives the streams of an episode that have rows.
func timelines(ctx context.Context, ds robocache.Dataset, episode int) ([]*timeline, span, error) {
	axis := span{math.MaxInt64, math.MinInt64}
	var out []*timeline
	features := ds.Info().Features
	for i := range features {
		f := &features[i]
		if f.Default {
			continue
		}
		s := &timeline{f: f}
		times, err := ds.Times(ctx, episode, f.Key)
		if ctx.Err() != nil {
			return nil, axis, ctx.Err()
		}
		if err == nil {
			s.rows, s.times = len(times), times
		} else if s.rows, err = robocache.RowsIn(ctx, ds, episode, f); err != nil {
			return nil, axis, err
		}
		if s.rows == 0 {
			continue
		}
		for _, t := range s.times {
			axis.from, axis.to = min(axis.from, t), max(axis.to, t)
		}
		out = append(out, s)
	}
	return out, axis, nil
}

// curves is what is drawn of a stream.
type curves struct {
	title string
	names []string        // of the channels, for the legend; none where rows are marks
	lines [][]plotter.XYs // of each channel, interrupted where there is no finite value
	marks []float64       // the times of rows that are not numbers
}

// streamPart draws a stream against the episode's time.
func streamPart(ctx context.Context, ds robocache.Dataset, s *timeline, episode int, axis span) (_ *part, err error) {
	defer guard.Into(&err)
	c := guard.Must(curvesOf(ctx, ds, s, episode, axis))
	p := plot.New()
	p.Title.Text = c.title
	p.Title.TextStyle.Font.Size = font.Points(8)
	p.X.Min, p.X.Max, p.X.Label.Text = 0, axis.seconds(axis.to), "s"
	if s.times == nil {
		p.X.Max, p.X.Label.Text = float64(s.rows-1), "row"
	}
	if p.X.Max <= p.X.Min {
		p.X.Max = p.X.Min + 1
	}
	height := plotHeight
	if len(c.marks) > 0 {
		height = markHeight
		p.HideY()
	}
	for _, x := range c.marks {
		addLine(p, plotter.XYs{{X: x}, {X: x, Y: 1}}, color.Black)
	}
	for i, parts := range c.lines {
		for _, xys := range parts {
			addLine(p, xys, channelColor(i))
		}
	}
	columns := 1 + (len(c.names)-1)/((plotHeight-2*legendLine)/legendLine)
	columns = min(max(columns, 1), 2)
	height = max(height, ((len(c.names)+columns-1)/columns+2)*legendLine)
	return &part{height, func(dc vgdraw.Canvas) {
		p.Draw(vgdraw.Crop(dc, 0, -legendPx*px, 0, 0))
		for i, name := range c.names {
			per := (len(c.names) + columns - 1) / columns
			x := dc.Max.X - legendPx*px + vg.Length(10+i/per*legendPx/columns)*px
			y := dc.Max.Y - vg.Length((i%per+2)*legendLine)*px
			dc.StrokeLine2(vgdraw.LineStyle{Color: channelColor(i), Width: 2 * px}, x, y+4*px, x+14*px, y+4*px)
			dc.FillText(textStyle(), vg.Point{X: x + 18*px, Y: y}, shortened(name, 42/columns))
		}
	}}, nil
}

func addLine(p *plot.Plot, xys plotter.XYs, c color.Color) {
	if len(xys) == 1 { // a line of one point shows nothing
		dot := guard.Must(plotter.NewScatter(xys))
		dot.Color, dot.Radius, dot.Shape = c, 1.5, vgdraw.CircleGlyph{}
		p.Add(dot)
		return
	}
	line := guard.Must(plotter.NewLine(xys))
	line.Color = c
	p.Add(line)
}

// channelColor gives neighbours colours that are far apart.
func channelColor(i int) color.Color {
	_, hue := math.Modf(0.6 + float64(i)*0.618034)
	return palette.HSVA{H: hue, S: 0.85, V: 0.85 - 0.3*float64(i%3)/2, A: 1}
}

func shortened(text string, letters int) string {
	if r := []rune(text); len(r) > letters {
		return string(r[:letters-1]) + "…"
	}
	return text
}

func curvesOf(ctx context.Context, ds robocache.Dataset, s *timeline, episode int, axis span) (_ *curves, err error) {
	defer guard.Into(&err)
	f := s.f
	x := func(row int) float64 {
		if s.times == nil {
			return float64(row)
		}
		return axis.seconds(s.times[row])
	}
	c := &curves{title: fmt.Sprintf("%s  %s %v, %d rows", f.Key, f.DType, f.Shape, s.rows)}
	if f.Unit != "" {
		c.title += ", in " + f.Unit
	}
	if f.Kind != robocache.KindNumeric || len(f.Shape) > 0 && f.Shape[0] < 0 || f.Elements() == 0 {
		c.title = fmt.Sprintf("%s  %s, %d rows", f.Key, f.Kind, s.rows)
		if f.Kind == robocache.KindText {
			texts := guard.Must(ds.Text(ctx, f.Key, []robocache.Row{{Episode: episode}}))
			c.title += fmt.Sprintf("; the first: %q", shortened(texts[0], 80))
		}
		step := max(1, s.rows/pointsWide)
		for row := 0; row < s.rows; row += step {
			c.marks = append(c.marks, x(row))
		}
		if step > 1 {
			c.title += fmt.Sprintf("; every %dth is marked", step)
		}
		return c, nil
	}
	d := f.Elements()
	n := min(d, maxCurves)
	c.names = channelNames(f)[:n]
	if n < d {
		c.title += fmt.Sprintf("; channels 0 to %d, the other %d are not drawn", n-1, d-n)
	}
	draws := make([]curve, n)
	missing := 0
	block := max(1, gatherSize/max(f.RowBytes(), 1))
	for from := 0; from < s.rows; from += block {
		rows := robocache.RowsOf(episode, from, min(block, s.rows-from))
		buf := make([]byte, len(rows)*f.RowBytes())
		guard.Check(ds.Gather(ctx, f.Key, rows, buf))
		valid := guard.Must(robocache.Validity(ctx, ds, f, rows))
		values := robocache.Float64s(nil, f.DType, buf)
		for i := range rows {
			at := x(from + i)
			part := -1
			if s.rows > 2*pointsWide {
				part = (from + i) * pointsWide / s.rows
			}
			for k := range draws {
				v := values[i*d+k]
				if valid != nil && valid[i] == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
					v = math.NaN()
					missing++
				}
				draws[k].add(at, v, part)
			}
		}
	}
	for k := range draws {
		c.lines = append(c.lines, draws[k].end())
	}
	if missing > 0 {
		c.title += fmt.Sprintf("; %d values are missing or not finite", missing)
	}
	return c, nil
}

// curve collects the points of one channel: all of them, or of each part of the rows the lowest and the highest.
type curve struct {
	done      []plotter.XYs
	open      plotter.XYs
	part      int
	low, high plotter.XY
	some      bool // low and high are set
}

func (c *curve) add(x, y float64, part int) {
	switch {
	case math.IsNaN(y):
		c.cut()
	case part < 0:
		c.open = append(c.open, plotter.XY{X: x, Y: y})
	default:
		if c.some && part != c.part {
			c.flush()
		}
		p := plotter.XY{X: x, Y: y}
		if !c.some {
			c.part, c.low, c.high, c.some = part, p, p, true
		}
		if y < c.low.Y {
			c.low = p
		}
		if y > c.high.Y {
			c.high = p
		}
	}
}

// flush puts the points of a part into the line, in the order of time.
func (c *curve) flush() {
	first, last := c.low, c.high
	if last.X < first.X {
		first, last = last, first
	}
	c.open = append(c.open, first)
	if first != last {
		c.open = append(c.open, last)
	}
	c.some = false
}

func (c *curve) cut() {
	if c.some {
		c.flush()
	}
	if len(c.open) > 0 {
		c.done, c.open = append(c.done, c.open), nil
	}
}

func (c *curve) end() []plotter.XYs {
	c.cut()
	return c.done
}

// channelNames gives each channel of a row a name: the format's own where there are as many, else its place.
func channelNames(f *robocache.Feature) []string {
	var v any
	if json.Unmarshal(f.Names, &v) == nil {
		if own := named(v, f.Elements()); own != nil {
			return own
		}
	}
	names := make([]string, f.Elements())
	for i := range names {
		place := []string{}
		rest := i
		for k := len(f.Shape) - 1; k >= 0; k-- {
			place = append([]string{strconv.Itoa(rest % f.Shape[k])}, place...)
			rest /= f.Shape[k]
		}
		names[i] = strings.Join(place, ",")
	}
	return names
}

// named finds a list of n texts: by itself, or as {"motors": […]} and [[…]], which LeRobot's recorders write too.
func named(v any, n int) []string {
	switch v := v.(type) {
	case []any:
		if len(v) == 1 && n != 1 {
			return named(v[0], n)
		}
		if len(v) != n {
			return nil
		}
		out := make([]string, n)
		for i, x := range v {
			text, ok := x.(string)
			if !ok {
				return nil
			}
			out[i] = text
		}
		return out
	case map[string]any:
		if len(v) != 1 {
			return nil
		}
		for _, x := range v {
			return named(x, n)
		}
	}
	return nil
}
