package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

var red = color.RGBA{R: 255, A: 255}

func drawn(t *testing.T, c *Canvas) (image.Image, string) {
	t.Helper()
	b, err := c.PNG()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return img, string(svg)
		} else if err != nil {
			t.Fatalf("%v: %s", err, svg)
		}
	}
}

// dark counts the pixels in a part of an image that are not white.
func dark(img image.Image, r image.Rectangle) (n int) {
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			if r, g, b, _ := img.At(x, y).RGBA(); r+g+b < 3*0xf000 {
				n++
			}
		}
	}
	return n
}

// Drawn elements are at their positions in both SVG and PNG. Parts outside the canvas are cut off
// (chart.C1, C2).
func TestMarks(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		draw   func(*Canvas)
		in     image.Rectangle
		pixels [2]int // minimum and maximum
		svg    string
	}{
		"line": {
			func(c *Canvas) { c.Line(red, 2, 0, Point{10, 10}, Point{50, 10}) },
			image.Rect(9, 9, 51, 11),
			[2]int{80, 84},
			`stroke="#ff0000" stroke-width="2" d="M10.0 10.0L50.0 10.0"`,
		},
		"gap": {func(c *Canvas) {
			c.Line(
				red,
				2,
				0,
				Point{10, 10},
				Point{20, 10},
				Point{nan, 1},
				Point{40, 10},
				Point{50, 10},
			)
		}, image.Rect(22, 9, 38, 11), [2]int{0, 0}, `M10.0 10.0L20.0 10.0M40.0 10.0L50.0 10.0`},
		"dot": {
			func(c *Canvas) {
				c.Line(red, 2, 0, Point{nan, 1}, Point{30, 30}, Point{math.Inf(1), 1})
			},
			image.Rect(26, 26, 34, 34),
			[2]int{20, 45},
			`fill="#ff0000"`,
		},
		"dashes": {
			func(c *Canvas) { c.Line(red, 2, 5, Point{10, 10}, Point{50, 10}) },
			image.Rect(9, 9, 51, 11),
			[2]int{40, 60},
			`M10.0 10.0L15.0 10.0M20.0 10.0L25.0 10.0`,
		},
		"crossing": {
			func(c *Canvas) {
				c.Line(red, 4, 0, Point{10, 10}, Point{50, 50}, Point{50, 10}, Point{10, 50})
			},
			image.Rect(27, 27, 33, 33),
			[2]int{20, 36},
			"L50.0 50.0",
		},
		"area": {
			func(c *Canvas) {
				c.Area(red, Point{10, 10}, Point{20, 10}, Point{20, 30}, Point{10, 30})
			},
			image.Rect(0, 0, 100, 100),
			[2]int{200, 200},
			`Z`,
		},
		"outside": {
			func(c *Canvas) {
				c.Area(red, Point{-1e6, -50}, Point{-5, -50}, Point{-5, 300}, Point{-1e6, 300})
			},
			image.Rect(0, 0, 100, 100),
			[2]int{0, 0},
			`Z`,
		},
		"half": {
			func(c *Canvas) {
				c.Area(red, Point{-50, -50}, Point{50, -50}, Point{50, 300}, Point{-50, 300})
			},
			image.Rect(0, 0, 100, 100),
			[2]int{5000, 5000},
			`Z`,
		},
		"text": {
			func(c *Canvas) { c.Text(50, 50, 0, 0, "mmmm") },
			image.Rect(50, 40, 100, 51),
			[2]int{80, 250},
			`<text x="50.0" y="50.0">mmmm</text>`,
		},
		"text ends": {
			func(c *Canvas) { c.Text(50, 50, 1, 0, "mmmm") },
			image.Rect(0, 40, 50, 51),
			[2]int{80, 250},
			`text-anchor="end"`,
		},
		"text turns": {
			func(c *Canvas) { c.Text(50, 50, 0, -90, "mmmm") },
			image.Rect(40, 0, 51, 50),
			[2]int{80, 250},
			`rotate(-90 50.0 50.0)`,
		},
		"image": {func(c *Canvas) {
			c.Image(
				Rect{10, 10, 20, 30},
				&image.Gray{Pix: []byte{0}, Stride: 1, Rect: image.Rect(0, 0, 1, 1)},
			)
		}, image.Rect(0, 0, 100, 100), [2]int{600, 600}, `xlink:href="data:image/png;base64,`},
	} {
		canvas := &Canvas{Width: 100, Height: 100}
		c.draw(canvas)
		img, svg := drawn(t, canvas)
		if n := dark(img, c.in); n < c.pixels[0] || n > c.pixels[1] || n > 0 &&
			n != dark(img, img.Bounds()) && !slices.Contains([]string{"gap", "crossing"}, name) {
			t.Errorf("%s: %d pixels, %d in all", name, n, dark(img, img.Bounds()))
		}
		if !strings.Contains(svg, c.svg) {
			t.Errorf("%s: no %s in %s", name, c.svg, svg)
		}
	}
}

// Texts stay texts, whatever they contain (chart.C3).
func TestHostileText(t *testing.T) {
	c := &Canvas{Width: 300, Height: 40}
	c.Text(0, 20, 0, 0, "</text><script>\x00\x1b\xff ]]> µ × 倉庫")
	if img, svg := drawn(t, c); strings.Contains(svg, "<script") ||
		!strings.Contains(svg, "µ × 倉庫") || dark(img, img.Bounds()) < 100 {
		t.Error(svg)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis      Axis
		low, high float64
		want      string
	}{
		{Axis{}, 0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{Axis{}, -0.31, 0.31, "-0.2 0 0.2"},
		{Axis{}, 0, 12345, "0 5000 10000"},
		{Axis{}, 1e-7, 4e-7, "1e-07 2e-07 3e-07 4e-07"},
		{Axis{}, 1e18, 1e18 + 1024, "1e+18 1.0000000000000005e+18 1.000000000000001e+18"},
		{Axis{Ticks: []Tick{{1, "a"}}}, 0, 2, "a"},
	} {
		var labels []string
		for _, k := range c.axis.placeTicks(c.low, c.high, 5) {
			labels = append(labels, k.Label)
		}
		if got := strings.Join(slices.Compact(labels), " "); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

// A plot of any values terminates and is well formed: no values, one, equal ones, or none finite.
func TestPlotOfAnyValues(t *testing.T) {
	for _, values := range [][]Point{
		nil,
		{{0, 0}},
		{{1, 5}, {2, 5}},
		{{math.NaN(), 1}, {1, math.Inf(1)}},
		{{0, 0}, {0, -1}},
		{{1e300, -1e300}, {-1e300, 1e300}},
		{{1, 1e-320}, {2, 2e-320}},
	} {
		p := &Plot{
			Title: "t",
			X:     Axis{Label: "x"},
			Y:     Axis{Label: "y"},
			Grid:  true,
			Lines: []Line{{Color: red, Width: 1, Points: values}},
		}
		c := &Canvas{Width: 200, Height: 100}
		p.Draw(c, Rect{0, 0, 200, 100})
		img, svg := drawn(t, c)
		if dark(img, img.Bounds()) < 100 || strings.Contains(svg, "NaN") ||
			strings.Contains(svg, "Inf") {
			t.Errorf("%v: %s", values, svg)
		}
	}
}
