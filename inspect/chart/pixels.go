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

// PNG is the drawing as a PNG file.
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
			p.text(&m)
		case m.width > 0:
			for _, line := range m.lines {
				p.stroke(line, m.width/2)
			}
		default:
			for _, line := range m.lines {
				p.outline(line...)
			}
		}
		p.fill(img, image.NewUniform(m.color))
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// path is an outline to fill: lines, and the curves of letters.
type path []step

type step struct {
	op sfnt.SegmentOp
	at [3]Point
}

func (p *path) outline(points ...Point) {
	for i, at := range points {
		// SegmentOpMoveTo, then SegmentOpLineTo
		*p = append(*p, step{sfnt.SegmentOp(min(i, 1)), [3]Point{at, at, at}})
	}
}

// stroke adds a rectangle for each piece of a line. All go round the same way, so that none takes
// from another. Pieces are not made longer to meet where a line turns: what two share counts twice
// at an edge, and a straight line of many pieces shows as beads.
func (p *path) stroke(line []Point, half float64) {
	for i := 1; i < len(line); i++ {
		a, b := line[i-1], line[i]
		d := math.Hypot(b.X-a.X, b.Y-a.Y)
		if d == 0 {
			continue
		}
		x, y := (b.X-a.X)/d*half, (b.Y-a.Y)/d*half
		p.outline(
			Point{a.X - y, a.Y + x},
			Point{b.X - y, b.Y + x},
			Point{b.X + y, b.Y - x},
			Point{a.X + y, a.Y - x},
		)
	}
}

// goFont is parsed once; the buffer of its letters has one user at a time.
var goFont = struct {
	sync.Mutex
	parse func() (*sfnt.Font, error)
	sfnt.Buffer
}{parse: sync.OnceValues(func() (*sfnt.Font, error) { return sfnt.Parse(goregular.TTF) })}

// letters calls each with the outline of every letter and the place where it stands, and gives how
// wide they are together.
func letters(text string, each func(sfnt.Segments, float64)) (wide float64) {
	goFont.Lock()
	defer goFont.Unlock()
	f, err := goFont.parse()
	if err != nil {
		return 0 // it is within the program, and a test parses it
	}
	for _, r := range text {
		i, _ := f.GlyphIndex(&goFont.Buffer, r) // 0, a box, where there is none
		if each != nil {
			if s, err := f.LoadGlyph(&goFont.Buffer, i, fixed.I(Size), nil); err == nil {
				each(s, wide)
			}
		}
		advance, _ := f.GlyphAdvance(&goFont.Buffer, i, fixed.I(Size), font.HintingNone)
		wide += pixels(advance)
	}
	return wide
}

// TextWidth is how wide a text is.
func TextWidth(text string) float64 { return letters(text, nil) }

func pixels(v fixed.Int26_6) float64 { return float64(v) / 64 }

func (p *path) text(m *mark) {
	sin, cos := math.Sincos(m.turn * math.Pi / 180)
	from := -m.align * TextWidth(m.text)
	letters(m.text, func(s sfnt.Segments, left float64) {
		for _, g := range s {
			st := step{op: g.Op}
			for i, a := range g.Args {
				x, y := from+left+pixels(a.X), pixels(a.Y)
				st.at[i] = Point{m.at.X + x*cos - y*sin, m.at.Y + x*sin + y*cos}
			}
			*p = append(*p, st)
		}
	})
}

// fill fills the outline, as far as it lies within the image.
func (p path) fill(on *image.RGBA, with image.Image) {
	low, high := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, s := range p {
		for _, at := range s.at[:points(s.op)] {
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

// points is how many a step of an outline has.
func points(op sfnt.SegmentOp) int { return [4]int{1, 1, 2, 3}[op] }
