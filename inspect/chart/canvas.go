package chart

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
)

// Size is the font size of all texts, in pixels.
const Size = 11

// Point is a point on a canvas, or a pair of values.
type Point struct{ X, Y float64 }

func (p Point) isFinite() bool { return !math.IsNaN(p.X-p.X) && !math.IsNaN(p.Y-p.Y) }

// Rect is a rectangle on a canvas.
type Rect struct{ X, Y, W, H float64 }

// Canvas records what was drawn on it.
type Canvas struct {
	Width, Height float64
	marks         []mark
}

// mark is one drawn element: a filled outline, stroked lines, a text or an image.
type mark struct {
	color color.RGBA
	lines [][]Point // outlines if width is 0
	width float64
	text  string
	at    Rect    // rectangle of an image, or anchor of a text
	align float64 // fraction of a text that lies left of its anchor
	turn  float64 // rotation of a text in degrees, clockwise
	image image.Image
}

// Area fills a polygon.
func (c *Canvas) Area(col color.RGBA, outline ...Point) {
	c.marks = append(c.marks, mark{color: col, lines: [][]Point{outline}})
}

// Line strokes a line. dash is the length of its dashes and of the gaps between them; 0 draws a
// solid line.
func (c *Canvas) Line(col color.RGBA, width, dash float64, points ...Point) {
	m := mark{color: col, width: width}
	var piece []Point
	end := func() {
		switch len(piece) {
		case 0:
		case 1:
			c.Dot(col, 1.5*width, piece[0])
		default:
			m.lines = append(m.lines, splitDashes(piece, dash)...)
		}
		piece = nil
	}
	for _, p := range points {
		if p.isFinite() {
			piece = append(piece, p)
		} else {
			end()
		}
	}
	if end(); len(m.lines) > 0 {
		c.marks = append(c.marks, m)
	}
}

// Dot fills a circle.
func (c *Canvas) Dot(col color.RGBA, radius float64, at Point) {
	var outline [12]Point
	for i := range outline {
		sin, cos := math.Sincos(float64(i) * math.Pi / 6)
		outline[i] = Point{at.X + radius*cos, at.Y + radius*sin}
	}
	c.Area(col, outline[:]...)
}

// splitDashes splits a line into dashes.
func splitDashes(line []Point, dash float64) (pieces [][]Point) {
	if dash <= 0 {
		return [][]Point{line}
	}
	left, on, piece := dash, true, line[:1]
	for i := 1; i < len(line); {
		a, b := piece[len(piece)-1], line[i]
		d := math.Hypot(b.X-a.X, b.Y-a.Y)
		if d <= left {
			piece, left, i = append(slices.Clip(piece), b), left-d, i+1
			continue
		}
		at := Point{a.X + (b.X-a.X)*left/d, a.Y + (b.Y-a.Y)*left/d}
		if on {
			pieces = append(pieces, append(slices.Clip(piece), at))
		}
		piece, left, on = []Point{at}, dash, !on
	}
	if on && len(piece) > 1 {
		pieces = append(pieces, piece)
	}
	return pieces
}

// Text writes a text with its base line at y. align is the fraction of the text left of x: 0, 0.5
// or 1. The text is rotated around that point by turn degrees, clockwise.
func (c *Canvas) Text(x, y, align, turn float64, text string) {
	c.marks = append(
		c.marks,
		mark{color: Black, at: Rect{X: x, Y: y}, align: align, turn: turn, text: text},
	)
}

// Image scales an image into a rectangle of the canvas.
func (c *Canvas) Image(to Rect, img image.Image) {
	c.marks = append(c.marks, mark{at: to, image: img})
}

// Black is the colour of texts and axes.
var Black = color.RGBA{A: 255}

// SVG returns the drawing as an SVG file.
func (c *Canvas) SVG() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="%[1]v" height="%[2]v" viewBox="0 0 %[1]v %[2]v" font-family="Go, sans-serif" font-size="%[3]d">`+"\n",
		math.Ceil(c.Width),
		math.Ceil(c.Height),
		Size,
	)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	for _, m := range c.marks {
		hex := fmt.Sprintf("#%02x%02x%02x", m.color.R, m.color.G, m.color.B)
		switch {
		case m.image != nil:
			var img bytes.Buffer
			if err := png.Encode(&img, m.image); err != nil {
				return nil, err
			}
			fmt.Fprintf(
				&b,
				`<image x="%.1f" y="%.1f" width="%.1f" height="%.1f" preserveAspectRatio="none" xlink:href="data:image/png;base64,%s"/>`,
				m.at.X,
				m.at.Y,
				m.at.W,
				m.at.H,
				base64.StdEncoding.EncodeToString(img.Bytes()),
			)
		case m.text != "":
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f"`, m.at.X, m.at.Y)
			if m.align > 0 {
				fmt.Fprintf(
					&b,
					` text-anchor="%s"`,
					map[bool]string{true: "end", false: "middle"}[m.align == 1],
				)
			}
			if m.turn != 0 {
				fmt.Fprintf(&b, ` transform="rotate(%v %.1f %.1f)"`, m.turn, m.at.X, m.at.Y)
			}
			b.WriteString(">")
			if err := xml.EscapeText(&b, []byte(m.text)); err != nil {
				return nil, err
			}
			b.WriteString("</text>")
		case m.width > 0:
			fmt.Fprintf(
				&b,
				`<path fill="none" stroke="%s" stroke-width="%v" d="%s"/>`,
				hex,
				m.width,
				pathText(m.lines, ""),
			)
		default:
			fmt.Fprintf(&b, `<path fill="%s" d="%s"/>`, hex, pathText(m.lines, "Z"))
		}
		b.WriteString("\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

func pathText(lines [][]Point, end string) string {
	var b strings.Builder
	for _, line := range lines {
		for i, p := range line {
			fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(i, 1)], p.X, p.Y)
		}
		b.WriteString(end)
	}
	return b.String()
}
