package inspect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	sheetWidth = 1280
	sheetCols  = 8  // frames a camera
	linePx     = 16 // a line of text
)

// CheckSheet refuses the name of a contact sheet whose suffix promises another file than a PNG: it is asked before any work is done.
func CheckSheet(path string) error {
	switch suffix := filepath.Ext(path); {
	case suffix == "", strings.EqualFold(suffix, ".png"):
		return nil
	default:
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "contact sheet", Where: robocache.Where{"file": path}, Want: "a name that ends in .png", Got: suffix, Hint: "a contact sheet is a PNG: name it " + strings.TrimSuffix(filepath.Base(path), suffix) + ".png"}
	}
}

// ContactSheet writes a PNG of one episode: evenly spaced frames of every camera, and every other stream below on one time axis, that of the whole
// episode. What is not drawn is said at the end. The file appears whole or not at all.
func ContactSheet(ctx context.Context, ds robocache.Dataset, episode int, path string) (err error) {
	defer guard.Into(&err)
	guard.Check(CheckSheet(path))
	ep := guard.Must(ds.Episode(ctx, episode))
	streams, axis, err := timelines(ctx, ds, episode)
	guard.Check(err)
	if len(streams) == 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "contact sheet", Where: robocache.Where{"episode": episode}, Msg: "the episode has no rows"}
	}
	slices.SortStableFunc(streams, func(a, b *timeline) int { return cmp.Compare(a.rank(), b.rank()) })
	parts := []image.Image{textPart([]string{fmt.Sprintf("episode %d of %s: %s", episode, robocache.Redact(ds.Info().URI), strings.Join(ep.Tasks, " | "))}).image()}
	for _, s := range streams {
		var img image.Image
		var err error
		if s.rank() == 0 {
			img, err = cameraStrip(ctx, ds, s, episode, axis)
		} else {
			var p *part
			if p, err = streamPart(ctx, ds, s, episode, axis); err == nil {
				img = p.image()
			}
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": s.f.Key, "episode": episode})
		}
		parts = append(parts, img)
	}
	parts = append(parts, textPart(leftOut(ds, streams)).image())
	height := 0
	for _, p := range parts {
		height += p.Bounds().Dy()
	}
	sheet := image.NewRGBA(image.Rect(0, 0, sheetWidth, height))
	draw.Draw(sheet, sheet.Bounds(), image.White, image.Point{}, draw.Src)
	y := 0
	for _, p := range parts {
		draw.Draw(sheet, image.Rect(0, y, sheetWidth, y+p.Bounds().Dy()), p, p.Bounds().Min, draw.Over)
		y += p.Bounds().Dy()
	}
	return writePNG(ctx, path, sheet)
}

// leftOut says which streams a sheet does not show.
func leftOut(ds robocache.Dataset, shown []*timeline) (lines []string) {
	var kept, empty []string
	here := map[string]bool{}
	for _, s := range shown {
		here[s.f.Key] = true
	}
	for i := range ds.Info().Features {
		switch f := &ds.Info().Features[i]; {
		case f.Default:
			kept = append(kept, f.Key)
		case !here[f.Key]:
			empty = append(empty, f.Key)
		}
	}
	if len(kept) > 0 {
		lines = append(lines, "not drawn, columns of the format's bookkeeping: "+strings.Join(kept, ", "))
	}
	if len(empty) > 0 {
		lines = append(lines, "not drawn, no rows in this episode: "+strings.Join(empty, ", "))
	}
	return lines
}

// cameraStrip decodes sheetCols frames of a camera side by side, with its name, their row numbers and their times above.
func cameraStrip(ctx context.Context, ds robocache.Dataset, s *timeline, episode int, axis span) (_ image.Image, err error) {
	defer guard.Into(&err)
	n := min(sheetCols, s.rows)
	rows := make([]robocache.Row, n)
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: i * (s.rows - 1) / max(n-1, 1)}
	}
	refs := make([]robocache.FrameRef, n)
	guard.Check(ds.Frames(ctx, s.f.Key, rows, refs))
	w := sheetWidth / sheetCols
	h := w * 3 / 4
	if s.f.Width > 0 && s.f.Height > 0 {
		h = max(1, w*s.f.Height/s.f.Width)
	}
	tiles := make([]*image.RGBA, n)
	decodeTiles(ctx, ds, refs, w, h, tiles)
	captionPx := 2 * linePx
	captions, dc := canvas(captionPx)
	for i := range rows {
		text := fmt.Sprintf("row %d", rows[i].Index)
		if s.times != nil {
			text += fmt.Sprintf(", %.2f s", axis.seconds(s.times[rows[i].Index]))
		}
		if tiles[i] == nil {
			text += ": none"
		}
		dc.FillText(textStyle(), vg.Point{X: dc.Max.X * vg.Length(i) / sheetCols, Y: 3}, text)
	}
	dc.FillText(textStyle(), vg.Point{Y: 3 + linePx*vg.Inch/96}, s.f.Key)
	strip := image.NewRGBA(image.Rect(0, 0, sheetWidth, captionPx+h))
	draw.Draw(strip, image.Rect(0, 0, sheetWidth, captionPx), captions.Image(), image.Point{}, draw.Over)
	for i, t := range tiles {
		var tile image.Image = image.NewUniform(color.Gray{Y: 224})
		if t != nil {
			tile = t
		}
		draw.Draw(strip, image.Rect(i*w, captionPx, (i+1)*w, captionPx+h), tile, image.Point{}, draw.Src)
	}
	return strip, nil
}

// canvas is a part of the sheet to draw on, of its width.
func canvas(height int) (*vgimg.Canvas, vgdraw.Canvas) {
	img := vgimg.New(vg.Length(sheetWidth)*vg.Inch/96, vg.Length(height)*vg.Inch/96)
	return img, vgdraw.New(img)
}

func textStyle() vgdraw.TextStyle {
	style := vgdraw.TextStyle{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size = font.Points(8)
	return style
}

// textPart draws lines of text, broken where the sheet ends.
func textPart(lines []string) *part {
	const wide = 200 // letters
	var broken []string
	for _, l := range lines {
		r := []rune(l)
		for len(r) > wide {
			broken, r = append(broken, string(r[:wide])), r[wide:]
		}
		broken = append(broken, string(r))
	}
	return &part{len(broken)*linePx + linePx/2, func(dc vgdraw.Canvas) {
		for i, l := range broken {
			dc.FillText(textStyle(), vg.Point{X: dc.Min.X + 3, Y: dc.Max.Y - vg.Length((i+1)*linePx)*px}, l)
		}
	}}
}

func decodeTiles(ctx context.Context, ds robocache.Dataset, refs []robocache.FrameRef, w, h int, tiles []*image.RGBA) {
	spec := &video.Spec{Width: w, Height: h, Pixel: video.RGB8}
	rgb := make([]byte, 3*w*h)
	put := func(i int) {
		t := image.NewRGBA(image.Rect(0, 0, w, h))
		for p := range w * h {
			copy(t.Pix[4*p:], rgb[3*p:3*p+3])
			t.Pix[4*p+3] = 255
		}
		tiles[i] = t
	}
	guard.Check(video.EachFrame(ctx, video.LibraryOf(ds), refs, video.Each{}, func(at []int, pic video.Frame) (err error) {
		switch {
		case pic != nil:
			err = pic.Convert(spec, rgb)
		case refs[at[0]].Missing:
			return nil
		default:
			err = stillTile(&refs[at[0]], spec, rgb)
		}
		if err == nil {
			for _, i := range at {
				put(i)
			}
		}
		return err
	}))
}

func writePNG(ctx context.Context, path string, img image.Image) error {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return robocache.At(err, robocache.Where{"file": path})
	}
	return store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), b.Bytes())
}
