package chart

import (
	"bytes"
	"image"
	"image/draw"
	"image/png"
	"math"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"

	scale "golang.org/x/image/draw"
)

// PNG returns the drawing as a PNG file.
func (c *Canvas) PNG() ([]byte, error) {
	img := image.NewRGBA(image.Rect(0, 0, int(math.Ceil(c.Width)), int(math.Ceil(c.Height))))
	draw.Draw(img, img.Rect, image.White, image.Point{}, draw.Src)
	for _, m := range c.marks {
		var p path
		switch {
		case m.image != nil:
			to := image.Rect(
				int(math.Round(m.at.X)),
				int(math.Round(m.at.Y)),
				int(math.Round(m.at.X+m.at.W)),
				int(math.Round(m.at.Y+m.at.H)),
			)
			scale.ApproxBiLinear.Scale(img, to, m.image, m.image.Bounds(), draw.Over, nil)
		case m.text != "":
			p.addText(&m)
		case m.width > 0:
			for _, line := range m.lines {
				p.addStroke(line, m.width/2)
			}
		default:
			for _, line := range m.lines {
				p.addOutline(line...)
			}
		}
		p.fillOn(img, image.NewUniform(m.color))
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// path is an outline to fill. It consists of lines and of the curves of letters.
type path []segment

type segment struct {
	op sfnt.SegmentOp
	at [3]Point
}

func (p *path) addOutline(points ...Point) {
	for i, at := range points {
		// The first operation is SegmentOpMoveTo, the others are SegmentOpLineTo.
		*p = append(*p, segment{sfnt.SegmentOp(min(i, 1)), [3]Point{at, at, at}})
	}
}

// addStroke adds a rectangle for each segment of a line. All rectangles have the same orientation,
// so that overlaps do not cancel. Segments are not extended to meet at corners: overlapping edges
// are counted twice, and a straight line of many segments would look like beads.
func (p *path) addStroke(line []Point, half float64) {
	for i := 1; i < len(line); i++ {
		a, b := line[i-1], line[i]
		d := math.Hypot(b.X-a.X, b.Y-a.Y)
		if d == 0 {
			continue
		}
		x, y := (b.X-a.X)/d*half, (b.Y-a.Y)/d*half
		p.addOutline(
			Point{a.X - y, a.Y + x},
			Point{b.X - y, b.Y + x},
			Point{b.X + y, b.Y - x},
			Point{a.X + y, a.Y - x},
		)
	}
}

// goFont is parsed once. Its lock protects the glyph buffer.
var goFont = struct {
	sync.Mutex
	parse func() (*sfnt.Font, error)
	sfnt.Buffer
}{parse: sync.OnceValues(func() (*sfnt.Font, error) { return sfnt.Parse(goregular.TTF) })}

// eachGlyph calls each with the outline and the position of every letter, and returns the width of
// the text.
func eachGlyph(text string, each func(sfnt.Segments, float64)) (wide float64) {
	goFont.Lock()
	defer goFont.Unlock()
	f, err := goFont.parse()
	if err != nil {
		return 0 // cannot happen: the font is embedded, and a test parses it
	}
	for _, r := range text {
		i, _ := f.GlyphIndex(&goFont.Buffer, r) // 0 is the box for a missing letter
		if each != nil {
			if s, err := f.LoadGlyph(&goFont.Buffer, i, fixed.I(Size), nil); err == nil {
				each(s, wide)
			}
		}
		advance, _ := f.GlyphAdvance(&goFont.Buffer, i, fixed.I(Size), font.HintingNone)
		wide += toPixels(advance)
	}
	return wide
}

// TextWidth returns the width of a text in pixels.
func TextWidth(text string) float64 { return eachGlyph(text, nil) }

func toPixels(v fixed.Int26_6) float64 { return float64(v) / 64 }

func (p *path) addText(m *mark) {
	sin, cos := math.Sincos(m.turn * math.Pi / 180)
	from := -m.align * TextWidth(m.text)
	eachGlyph(m.text, func(s sfnt.Segments, left float64) {
		for _, g := range s {
			st := segment{op: g.Op}
			for i, a := range g.Args {
				x, y := from+left+toPixels(a.X), toPixels(a.Y)
				st.at[i] = Point{m.at.X + x*cos - y*sin, m.at.Y + x*sin + y*cos}
			}
			*p = append(*p, st)
		}
	})
}

// fillOn fills the outline on an image and clips it to the image.
func (p path) fillOn(on *image.RGBA, with image.Image) {
	low, high := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, s := range p {
		for _, at := range s.at[:pointCount(s.op)] {
			low, high = Point{
				min(low.X, at.X),
				min(low.Y, at.Y),
			}, Point{
				max(high.X, at.X),
				max(high.Y, at.Y),
			}
		}
	}
	whole := image.Rect(0, 0, 0, 0)
	if len(p) > 0 {
		whole = image.Rect(
			int(math.Floor(low.X)),
			int(math.Floor(low.Y)),
			int(math.Ceil(high.X)),
			int(math.Ceil(high.Y)),
		)
	}
	box := whole.Intersect(on.Rect)
	if box.Empty() {
		return
	}
	r := vector.NewRasterizer(box.Dx(), box.Dy())
	for _, s := range p {
		var v [3][2]float32
		for i, at := range s.at {
			v[i] = [2]float32{
				float32(at.X) - float32(box.Min.X),
				float32(at.Y) - float32(box.Min.Y),
			}
		}
		switch s.op {
		case sfnt.SegmentOpMoveTo:
			r.ClosePath()
			r.MoveTo(v[0][0], v[0][1])
		case sfnt.SegmentOpLineTo:
			r.LineTo(v[0][0], v[0][1])
		case sfnt.SegmentOpQuadTo:
			r.QuadTo(v[0][0], v[0][1], v[1][0], v[1][1])
		case sfnt.SegmentOpCubeTo:
			r.CubeTo(v[0][0], v[0][1], v[1][0], v[1][1], v[2][0], v[2][1])
		}
	}
	r.ClosePath()
	r.Draw(on, box, with, image.Point{})
}

// pointCount returns the number of points of a path operation.
func pointCount(op sfnt.SegmentOp) int { return [4]int{1, 1, 2, 3}[op] }
