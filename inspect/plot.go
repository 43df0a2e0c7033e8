package inspect

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"image"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// px is a pixel of a sheet.
const px = vg.Inch / 96

// part is a row of a figure: of its width, and a height in pixels.
type part struct {
	height int
	draw   func(vgdraw.Canvas)
}

// image draws a part alone.
func (p *part) image() image.Image {
	img, dc := canvas(p.height)
	p.draw(dc)
	return img.Image()
}

// Plotted says what a figure shows.
type Plotted struct {
	File    string   `json:"file"`
	Episode int      `json:"episode"`
	Streams []string `json:"streams"`
	Notes   []string `json:"notes,omitempty"` // what is not drawn
}

// CheckPlot refuses the name of a plot whose suffix is none of .png, .svg and .html: it is asked before any work is done.
func CheckPlot(path string) error {
	if slices.Contains([]string{".png", ".svg", ".html"}, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "plot", Where: robocache.Where{"file": path}, Want: "a name that ends in .png, .svg or .html", Got: strconv.Quote(filepath.Ext(path))}
}

// Plot draws streams of an episode below each other, on one axis, the episode's whole time, each at its own timestamps. keys: the streams (of a camera: frames);
// none: all but cameras. The name's suffix says what is written: PNG, SVG, or a page that holds the SVG, without scripts. The file appears whole or not at all.
func Plot(ctx context.Context, ds robocache.Dataset, episode int, keys []string, path string) (_ *Plotted, err error) {
	defer guard.Into(&err)
	guard.Check(CheckPlot(path))
	ep := guard.Must(ds.Episode(ctx, episode))
	streams, axis, err := timelines(ctx, ds, episode)
	guard.Check(err)
	chosen, notes := choose(ds, streams, keys)
	if len(chosen) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "plot", Where: robocache.Where{"episode": episode}, Msg: "the episode has nothing to draw", Got: strings.Join(notes, "; "), Hint: "--keys names cameras too: their frames are drawn"}
	}
	title := fmt.Sprintf("episode %d of %s: %s", episode, robocache.Redact(ds.Info().URI), strings.Join(ep.Tasks, " | "))
	parts := []*part{textPart([]string{title})}
	out := &Plotted{File: path, Episode: episode, Notes: notes}
	for _, s := range chosen {
		defer guard.At(robocache.Where{"stream": s.f.Key, "episode": episode})
		var p *part
		if s.rank() == 0 {
			strip := guard.Must(cameraStrip(ctx, ds, s, episode, axis))
			p = &part{strip.Bounds().Dy(), func(c vgdraw.Canvas) { c.DrawImage(c.Rectangle, strip) }}
		} else {
			p = guard.Must(streamPart(ctx, ds, s, episode, axis))
		}
		parts, out.Streams = append(parts, p), append(out.Streams, s.f.Key)
	}
	parts = append(parts, textPart(notes))
	return out, store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), render(parts, strings.ToLower(filepath.Ext(path)), title))
}

// choose gives the streams that are drawn, and says which are not.
func choose(ds robocache.Dataset, streams []*timeline, keys []string) (chosen []*timeline, notes []string) {
	if len(keys) == 0 {
		var cameras []string
		for _, s := range streams {
			if s.rank() == 0 {
				cameras = append(cameras, s.f.Key)
			} else {
				chosen = append(chosen, s)
			}
		}
		slices.SortStableFunc(chosen, func(a, b *timeline) int { return a.rank() - b.rank() })
		if notes = leftOut(ds, streams); len(cameras) > 0 {
			notes = append([]string{"not drawn, cameras (--keys draws frames of them): " + strings.Join(cameras, ", ")}, notes...)
		}
		return chosen, notes
	}
	for _, key := range keys {
		i := slices.IndexFunc(streams, func(s *timeline) bool { return s.f.Key == key })
		if i >= 0 {
			chosen = append(chosen, streams[i])
			continue
		}
		f := ds.Info().Feature(key)
		if f == nil {
			var known []string
			for _, s := range streams {
				known = append(known, s.f.Key)
			}
			guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "plot", Where: robocache.Where{"stream": key}, Msg: "there is no such stream", Hint: "it has: " + strings.Join(known, ", ")})
		}
		if f.Default {
			guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "plot", Where: robocache.Where{"stream": key}, Msg: "a column of the format's bookkeeping is not drawn"})
		}
		notes = append(notes, "not drawn, no rows in this episode: "+key)
	}
	return chosen, notes
}

// render draws parts below each other.
func render(parts []*part, suffix, title string) []byte {
	height := 0
	for _, p := range parts {
		height += p.height
	}
	wide, high := vg.Length(sheetWidth)*px, vg.Length(height)*px
	var on interface {
		vg.CanvasSizer
		io.WriterTo
	} = vgsvg.New(wide, high)
	if suffix == ".png" {
		on = vgimg.PngCanvas{Canvas: vgimg.New(wide, high)}
	}
	dc := vgdraw.New(on)
	top := dc.Max.Y
	for _, p := range parts {
		below := top - vg.Length(p.height)*px
		c := dc
		c.Min.Y, c.Max.Y = below, top
		p.draw(c)
		top = below
	}
	var b bytes.Buffer
	guard.Must(on.WriteTo(&b))
	if suffix == ".png" {
		return b.Bytes()
	}
	svg := bytes.ReplaceAll(b.Bytes(), []byte(`xlink:href="data:image/jpg;`), []byte(`xlink:href="data:image/png;`)) // which they are
	if suffix == ".svg" {
		return svg
	}
	if at := bytes.Index(svg, []byte("<svg")); at > 0 {
		svg = svg[at:]
	}
	return fmt.Appendf(nil, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title><style>body{margin:1em;background:#fff}svg{max-width:100%%;height:auto}</style></head><body>\n%s\n</body></html>\n", html.EscapeString(title), svg)
}
